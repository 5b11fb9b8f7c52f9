//! What can be wrong with a policy attribute. Every variant says what is wrong and what to do instead.

/// Why a policy attribute was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The key after `user.stere.` is none that can be set.
    #[error("there is no policy key '{0}'; the keys are {keys}", keys = crate::keys::settable_keys())]
    UnknownKey(String),
    /// A key that classes say nothing of.
    #[error("a class cannot say '{0}'; the keys of classes are {keys}", keys = crate::keys::class_keys())]
    NotOfClasses(String),
    /// The key after `trusted.stere.` is none that can be locked.
    #[error("'{0}' cannot be locked; the keys that can are {keys}", keys = crate::keys::lockable_keys())]
    NotLockable(String),
    /// The key is known, the value is not one it can have.
    #[error("'{value}' is no value for policy key '{key}'; give {expected}")]
    BadValue {
        /// The key whose value was refused.
        key: &'static str,
        /// The refused value, lossily as text.
        value: String,
        /// What would have been accepted.
        expected: &'static str,
    },
    /// Rules that do not parse.
    #[error("the rules are not understood: {0}")]
    Rules(#[from] crate::rules::RuleError),
    /// The name answers a computed fact, and facts cannot be set.
    #[error("'{0}' is computed and can only be read; the keys that can be set are {keys}", keys = crate::keys::settable_keys())]
    Computed(&'static str),
}
