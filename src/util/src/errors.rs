//! A list of errors for work that goes on after a failure: teardown does all its steps and reports everything at once.

use std::error::Error;
use std::fmt;

/// Errors collected while all steps were tried.
#[derive(Debug)]
pub struct ErrorList<E>(Vec<E>);

impl<E> Default for ErrorList<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> ErrorList<E> {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error.
    pub fn push(&mut self, error: E) {
        self.0.push(error);
    }

    /// Keeps the error of a step, if it failed, and returns its value otherwise.
    pub fn keep<T>(&mut self, step: Result<T, impl Into<E>>) -> Option<T> {
        match step {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.push(error.into());
                None
            }
        }
    }

    /// Says whether nothing failed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of failures.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The errors in the order they happened.
    pub fn iter(&self) -> std::slice::Iter<'_, E> {
        self.0.iter()
    }

    /// Turns the list into a result: `Ok` when nothing failed.
    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl<E> IntoIterator for ErrorList<E> {
    type Item = E;
    type IntoIter = std::vec::IntoIter<E>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, E> IntoIterator for &'a ErrorList<E> {
    type Item = &'a E;
    type IntoIter = std::slice::Iter<'a, E>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<E> Extend<E> for ErrorList<E> {
    fn extend<I: IntoIterator<Item = E>>(&mut self, errors: I) {
        self.0.extend(errors);
    }
}

impl<E: fmt::Display> fmt::Display for ErrorList<E> {
    /// One error stands alone; several are written in brackets, separated by commas, each distinct text once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = Vec::with_capacity(self.0.len());
        for error in &self.0 {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "[{}]", many.join(", ")),
        }
    }
}

impl<E: Error + 'static> Error for ErrorList<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.first().and_then(Error::source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_reported_and_equal_texts_once() {
        let mut errors: ErrorList<String> = ErrorList::new();
        assert_eq!(errors.keep(Ok::<_, String>(1)), Some(1));
        assert!(errors.is_empty());
        for text in ["a", "b", "a"] {
            assert_eq!(errors.keep(Err::<(), _>(text)), None);
        }
        assert_eq!(errors.to_string(), "[a, b]");
        assert_eq!(errors.len(), 3);
        assert!(errors.into_result().is_err());
    }
}
