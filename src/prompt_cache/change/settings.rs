//! Settings beside the blocks that two requests differ in.

use crate::prompt_cache::trail::{Setting, Trail};
use crate::provider::view::Section;

/// What is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The model.
    Model,
    /// The beta feature that switches the fast mode on.
    FastBeta,
    /// The set of beta features.
    Betas,
    /// A parameter, by its JSON path or word.
    Parameter(&'static str),
}

/// What became of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// It was not set before.
    Added,
    /// It is not set any more.
    Removed,
    /// It is set to something else.
    Changed,
}

/// One setting that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SettingChange {
    /// Which one.
    pub setting: Settled,
    /// What became of it.
    pub how: How,
    /// The first level whose entries it can cost.
    pub from: Section,
}

impl SettingChange {
    /// Its JSON path or word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.setting {
            Settled::Model => "model",
            Settled::FastBeta => "fast mode",
            Settled::Betas => "beta features",
            Settled::Parameter(name) => name,
        }
    }
}

/// The settings that differ: the model, then the headers, then the parameters in their order.
#[must_use]
pub fn setting_changes(past: &Trail, now: &Trail) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    let mut add = |setting, how, from| changes.push(SettingChange { setting, how, from });
    if past.model != now.model {
        add(Settled::Model, How::Changed, Section::Tools);
    }
    match (past.fast_beta, now.fast_beta) {
        (false, true) => add(Settled::FastBeta, How::Added, Section::Tools),
        (true, false) => add(Settled::FastBeta, How::Removed, Section::Tools),
        _ => {}
    }
    if past.betas != now.betas {
        add(Settled::Betas, How::Changed, Section::Tools);
    }
    let of = |settings: &[Setting], name| settings.iter().find(|s| s.name == name).copied();
    for setting in &now.settings {
        match of(&past.settings, setting.name) {
            None => add(Settled::Parameter(setting.name), How::Added, setting.from),
            Some(old) if old.value != setting.value => {
                let from = setting.from.min(old.from);
                add(Settled::Parameter(setting.name), How::Changed, from);
            }
            Some(_) => {}
        }
    }
    for setting in &past.settings {
        if of(&now.settings, setting.name).is_none() {
            add(Settled::Parameter(setting.name), How::Removed, setting.from);
        }
    }
    changes
}

/// The same for people: `tool_choice added, thinking changed`.
#[must_use]
pub fn settings_in_words(changes: &[SettingChange]) -> String {
    let word = |change: &SettingChange| {
        let how = match change.how {
            How::Added => "added",
            How::Removed => "removed",
            How::Changed => "changed",
        };
        format!("{} {how}", change.name())
    };
    let words: Vec<_> = changes.iter().map(word).collect();
    words.join(", ")
}
