"""Follows the ConfigMaps of a namespace with the stock Python client's informer and prints what it is told, until it
is ended: informer.py KUBECONFIG."""

import logging
import signal
import sys

from kubernetes import client, config
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer

logging.disable(logging.CRITICAL)
config.load_kube_config(sys.argv[1])
informer = SharedInformer(
    client.CoreV1Api().list_namespaced_config_map, namespace="default", label_selector="followed=yes"
)
for kind in (ADDED, MODIFIED, DELETED):
    informer.add_event_handler(kind, lambda thing, kind=kind: print(kind, thing.metadata.name, flush=True))
informer.start()
signal.pause()
