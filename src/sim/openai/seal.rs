//! `encrypted_content`: opaque to clients, and only the provider that wrote it reads it.

use sha2::{Digest, Sha256};

use crate::sim::conversation::hex;

/// How all of them begin.
const START: &str = "gAAAA";

/// Bytes of the check behind the name, in hexadecimal.
const CHECK: usize = 16;

/// Seals and opens with one provider's secret.
#[derive(Debug, Clone, Copy)]
pub struct Seal {
    /// Differs between simulated providers.
    pub seed: u64,
}

impl Seal {
    /// The sealed content of the item that is known by `name`.
    #[must_use]
    pub fn close(self, name: &str) -> String {
        format!("{START}{name}{}", self.check(name))
    }

    /// The name of the item whose content this is; `None` if another provider wrote it.
    #[must_use]
    pub fn open(self, sealed: &str) -> Option<&str> {
        let name = name(sealed)?;
        let check = sealed.get(START.len() + name.len()..)?;
        (check == self.check(name)).then_some(name)
    }

    fn check(self, name: &str) -> String {
        let hash = Sha256::new()
            .chain_update(b"seal")
            .chain_update(self.seed.to_le_bytes())
            .chain_update(name)
            .finalize();
        hex(&hash[..CHECK / 2])
    }
}

/// The name inside, unchecked: what tells one item from another.
#[must_use]
pub fn name(sealed: &str) -> Option<&str> {
    let rest = sealed.strip_prefix(START)?;
    rest.get(..rest.len().checked_sub(CHECK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_writer_opens_it() {
        let seal = Seal { seed: 1 };
        let sealed = seal.close("01abc");
        assert_eq!(seal.open(&sealed), Some("01abc"));
        assert_eq!(Seal { seed: 2 }.open(&sealed), None);
        assert_eq!(seal.open("gAAAA"), None);
        assert_eq!(seal.open("é"), None);
        assert_eq!(seal.open(&sealed.replace("abc", "abd")), None);
    }
}
