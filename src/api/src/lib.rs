//! Pure Kubernetes meaning: defaults, validation, pod rules and status composition.
//! Knows no IO, no clock and no runtime; everything here is a function of its arguments.

pub mod cel;
pub mod conditions;
pub mod custom;
pub mod defaults;
pub mod dns;
pub mod downward;
pub mod duration;
pub mod env_file;
pub mod expand;
pub mod flags;
pub mod gates;
pub mod hash;
pub mod hosts;
pub mod image_name;
pub mod kubelet_config;
pub mod managed;
pub mod names;
pub mod patch;
pub mod phase;
pub mod placement;
pub mod podstatus;
pub mod qos;
pub mod quantity;
pub mod resize;
pub mod resources;
pub mod restart;
mod scalars;
pub mod schema;
pub mod security;
pub mod selector;
pub mod service_env;
pub mod shape;
pub mod signals;
pub mod validate;
