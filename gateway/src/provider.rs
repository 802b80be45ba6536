//! What a provider's dialect is asked, and which provider serves a model. No I/O.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::call::{Call, Edit};
use crate::config;
use crate::error::{Answered, Error};

pub mod openai;
pub mod retry_after;

/// One way of speaking to a provider: turns a call into its form, and its answers into the client's.
pub trait Provider: Send + Sync {
    /// What changes in the messages.
    fn messages<'c>(&self, call: &Call<'c>) -> Vec<Edit<'c>>;

    /// What changes in the parameters, the model's name among them.
    fn params<'c>(&self, call: &Call<'c>, model: &str) -> Vec<Edit<'c>>;

    /// What makes the provider tell a stream's tokens, where the client has not decided that.
    fn usage<'c>(&self, call: &Call<'c>) -> Option<Edit<'c>>;

    /// Where chats go, below the base URL.
    fn path(&self) -> &'static str;

    /// What a successful answer's whole body holds.
    ///
    /// # Errors
    ///
    /// When it holds an error, or no answer.
    fn answer(&self, body: &[u8]) -> Result<Usage, Error>;

    /// What an error answer says.
    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: Bytes) -> Answered;

    /// What one event of a stream holds, by its name, mostly empty, and its data.
    fn event(&self, name: &[u8], data: &[u8]) -> Event;

    /// The data of the event that ends a stream; none if nothing does.
    fn terminator(&self) -> Option<&'static str>;
}

/// Tokens, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens in.
    pub prompt_tokens: u32,
    /// Tokens out.
    pub completion_tokens: u32,
}

/// What an event of a stream holds.
#[derive(Debug)]
pub struct Event {
    /// What the client has of it.
    pub holds: Holds,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Which of the choices it is about, and which of them finish, a bit each: `n` asks for several.
    pub choices: u64,
    /// See `choices`.
    pub finished: u64,
}

/// What a client has of an event.
#[derive(Debug)]
pub enum Holds {
    /// Nothing that it waits for: a role, an empty text.
    Preamble,
    /// Tokens and nothing else: it would not have come without [`Provider::usage`].
    UsageOnly,
    /// Something that it waits for: text, a tool call.
    Content,
    /// The reason why the model stopped.
    Finish,
    /// The stream's terminator.
    Terminator,
    /// The provider failed in the middle.
    Failure(Box<Answered>),
}

impl From<Holds> for Event {
    fn from(holds: Holds) -> Self {
        Self {
            holds,
            usage: None,
            choices: 0,
            finished: 0,
        }
    }
}

/// The dialect of a kind.
#[must_use]
pub fn dialect(kind: config::Kind) -> &'static dyn Provider {
    match kind {
        config::Kind::OpenAi => &openai::OpenAi,
    }
}

/// Which providers serve which models.
#[derive(Debug, Default)]
pub struct Catalogue {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    /// Empty for any.
    models: Vec<String>,
    fallbacks: Vec<String>,
}

/// A provider, by its index, and the model as that provider calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The provider's place in the settings.
    pub provider: usize,
    /// The model's name without the provider's.
    pub model: String,
}

/// The models that a client may ask for.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Each cut at its stars; none of them for everything.
    patterns: Vec<Vec<String>>,
}

impl Reach {
    /// What these patterns of `provider/model` reach; without any, everything.
    #[must_use]
    pub fn new(patterns: &[String]) -> Self {
        let cut = |pattern: &String| pattern.split('*').map(str::to_owned).collect();
        Self {
            patterns: patterns.iter().map(cut).collect(),
        }
    }

    /// Whether it reaches the model of that whole name.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|parts| matches(parts, name))
    }
}

/// Whether `name` is `parts` with anything between them.
fn matches(parts: &[String], name: &str) -> bool {
    let [first, between @ .., last] = parts else {
        return parts.iter().all(|only| only == name);
    };
    let Some(rest) = name.strip_prefix(first.as_str()) else {
        return false;
    };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
        return false;
    };
    for part in between {
        let Some(at) = rest.find(part.as_str()) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

impl Catalogue {
    /// The catalogue of the configured providers, in their order.
    #[must_use]
    pub fn new(providers: &std::collections::BTreeMap<String, config::Provider>) -> Self {
        let entries = providers
            .iter()
            .map(|(name, provider)| Entry {
                name: name.clone(),
                models: provider.models.clone(),
                fallbacks: provider.fallbacks.clone(),
            })
            .collect();
        Self { entries }
    }

    /// Who serves `model`: `provider/model`, cut at the first slash and only if a provider has that name; else a bare
    /// name, if one provider lists it, or only one would take any.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownModel`] and [`Error::AmbiguousModel`].
    pub fn serving(&self, model: &str) -> Result<Target, Error> {
        if let Some((name, rest)) = model.split_once('/')
            && let Some(provider) = self.entries.iter().position(|entry| entry.name == name)
        {
            let entry = &self.entries[provider];
            let known = !rest.is_empty() && (entry.models.is_empty() || entry.lists(rest));
            return if known {
                Ok(target(provider, rest))
            } else {
                Err(Error::UnknownModel(model.to_owned()))
            };
        }
        let listing: Vec<usize> = self.those(|entry| entry.lists(model));
        let serving = if listing.is_empty() {
            self.those(|entry| entry.models.is_empty())
        } else {
            listing
        };
        match serving[..] {
            [] => Err(Error::UnknownModel(model.to_owned())),
            [provider] => Ok(target(provider, model)),
            _ => Err(Error::AmbiguousModel {
                model: model.to_owned(),
                choices: serving
                    .iter()
                    .map(|provider| format!("`{}/{model}`", self.entries[*provider].name))
                    .collect::<Vec<_>>()
                    .join(" or "),
            }),
        }
    }

    /// Who is asked after `first` has failed: those that the request names, or else those that the settings name.
    /// Entries that nobody serves are left out, and nobody is asked twice for the same.
    #[must_use]
    pub fn fallbacks<'a>(
        &self,
        first: &Target,
        asked: impl ExactSizeIterator<Item = &'a str>,
    ) -> Vec<Target> {
        let named: Vec<&str> = if asked.len() > 0 {
            asked.collect()
        } else {
            self.entries[first.provider]
                .fallbacks
                .iter()
                .map(String::as_str)
                .collect()
        };
        let mut targets: Vec<Target> = vec![];
        for target in named
            .into_iter()
            .filter_map(|model| self.serving(model).ok())
        {
            if target != *first && !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }

    /// Whether `reach` covers `target`.
    #[must_use]
    pub fn is_within(&self, reach: &Reach, target: &Target) -> bool {
        let provider = &self.entries[target.provider].name;
        reach.patterns.is_empty() || reach.allows(&format!("{provider}/{}", target.model))
    }

    fn those(&self, is_meant: impl Fn(&Entry) -> bool) -> Vec<usize> {
        (0..self.entries.len())
            .filter(|provider| is_meant(&self.entries[*provider]))
            .collect()
    }
}

impl Entry {
    fn lists(&self, model: &str) -> bool {
        self.models.iter().any(|listed| listed == model)
    }
}

fn target(provider: usize, model: &str) -> Target {
    Target {
        provider,
        model: model.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(entries: &[(&str, &[&str])]) -> Catalogue {
        let entries = entries
            .iter()
            .map(|(name, models)| Entry {
                name: (*name).to_owned(),
                models: models.iter().map(|model| (*model).to_owned()).collect(),
                fallbacks: vec!["b/spare".to_owned()],
            })
            .collect();
        Catalogue { entries }
    }

    #[test]
    fn a_name_is_cut_at_the_first_slash_and_only_behind_a_provider() {
        let catalogue = catalogue(&[("a", &[]), ("b", &["listed", "x/y:z"])]);
        let check = |model: &str, provider, rest: &str| {
            assert_eq!(
                catalogue.serving(model).unwrap(),
                target(provider, rest),
                "{model}"
            );
        };
        check("a/m", 0, "m");
        check("a/meta-llama/llama-3:free", 0, "meta-llama/llama-3:free");
        check("b/x/y:z", 1, "x/y:z");
        check("meta-llama/llama-3:free", 0, "meta-llama/llama-3:free");
        check("listed", 1, "listed");
    }

    #[test]
    fn a_reach_is_patterns_of_whole_names() {
        let check = |patterns: &[&str], name: &str, expected| {
            let patterns: Vec<_> = patterns.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(
                Reach::new(&patterns).allows(name),
                expected,
                "{patterns:?} {name}"
            );
        };
        check(&[], "a/m", true);
        check(&["a/m"], "a/m", true);
        check(&["a/m"], "a/mm", false);
        check(&["a/m"], "b/m", false);
        check(&["b/x", "a/*"], "a/x/y", true);
        check(&["a/*"], "aa/x", false);
        check(&["*/gpt"], "b/gpt", true);
        check(&["*"], "b/gpt", true);
        check(&["a/gpt-*-mini"], "a/gpt-4o-mini", true);
        check(&["a/gpt-*-mini"], "a/gpt-mini", false);
        check(&["a/*b*c"], "a/xbyc", true);
        check(&["a/*b*c"], "a/cb", false);
    }

    #[test]
    fn what_nobody_or_more_than_one_serves_is_said() {
        let one = catalogue(&[("b", &["listed"])]);
        assert!(matches!(one.serving("other"), Err(Error::UnknownModel(_))));
        assert!(matches!(
            one.serving("b/other"),
            Err(Error::UnknownModel(_))
        ));
        assert!(matches!(one.serving("b/"), Err(Error::UnknownModel(_))));
        let two = catalogue(&[("a", &[]), ("b", &[])]);
        assert_eq!(
            two.serving("m").unwrap_err().to_string(),
            "the model `m` is served by several providers: write `a/m` or `b/m`"
        );
    }

    #[test]
    fn the_requests_fallbacks_come_before_the_settings_and_no_target_twice() {
        let catalogue = catalogue(&[("a", &[]), ("b", &[])]);
        let first = target(0, "m");
        let asked = ["a/m", "b/m", "b/m", "nobody", "a/n"];
        assert_eq!(
            catalogue.fallbacks(&first, asked.into_iter()),
            [target(1, "m"), target(0, "n")]
        );
        assert_eq!(
            catalogue.fallbacks(&first, [].into_iter()),
            [target(1, "spare")]
        );
    }
}
