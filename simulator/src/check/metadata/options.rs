//! What a topic's options may be, and what becomes of them: the table of the protocol.
//!
//! Source: `wire.md` 4.9.

use std::collections::BTreeMap;

use wire::{ErrorCode, Options, Value, options::kind};

const NEVER: u64 = u64::MAX;

/// A value as it is kept: its kind and bytes.
type Kept = (u8, Vec<u8>);

/// The options of a topic by key, and which of them somebody has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicOptions {
    values: BTreeMap<&'static str, (Kept, bool)>,
}

/// The sizes that the server is configured with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segments {
    /// What a topic gets that does not say.
    pub(crate) usual: u64,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// Key, what it is without being set, and whether an update may set it.
const TABLE: [(&str, bool); 9] = [
    ("compression_algorithm", true),
    ("consumer_offset_durability", false),
    ("durability", false),
    ("max_topic_size", true),
    ("message_expiry", true),
    ("messages_required_to_save", false),
    ("preallocate_segments", false),
    ("segment_size", false),
    ("size_of_messages_required_to_save", false),
];

fn text(text: &str) -> Kept {
    (kind::STRING, text.as_bytes().to_vec())
}

fn number(number: u64) -> Kept {
    (kind::UINT64, number.to_le_bytes().to_vec())
}

impl TopicOptions {
    pub(super) fn new(segments: &Segments) -> Self {
        let values = TABLE.iter().map(|&(key, _)| {
            let value = match key {
                "compression_algorithm" => text("none"),
                "durability" | "consumer_offset_durability" => text("replicated"),
                "messages_required_to_save" => (kind::UINT32, 1024_u32.to_le_bytes().to_vec()),
                "size_of_messages_required_to_save" => number(1 << 20),
                "preallocate_segments" => (kind::BOOL, vec![0]),
                "segment_size" => number(segments.usual),
                _ => number(NEVER),
            };
            (key, (value, false))
        });
        Self {
            values: values.collect(),
        }
    }

    /// These options with those of a request; an `update` may not set all. The reasons to refuse
    /// the request, if there are any.
    pub(super) fn with(
        &self,
        options: Options<'_>,
        update: bool,
        segments: &Segments,
    ) -> Result<Self, Vec<ErrorCode>> {
        let mut new = self.clone();
        let mut reasons = Vec::new();
        for (key, value) in options.iter() {
            let row = TABLE.iter().find(|(known, _)| *known == key);
            let Some(&(key, _)) = row.filter(|(_, updatable)| *updatable || !update) else {
                reasons.push(ErrorCode::UNSUPPORTED_OPTION_KEY);
                continue;
            };
            match kept(key, value, segments) {
                Some(kept) => {
                    new.values.insert(key, (kept, true));
                }
                None => reasons.push(ErrorCode::INVALID_OPTION_VALUE),
            }
        }
        if reasons.is_empty() && new.number("max_topic_size") < new.number("segment_size") {
            reasons.push(ErrorCode::INVALID_TOPIC_SIZE);
        }
        if reasons.is_empty() {
            Ok(new)
        } else {
            Err(reasons)
        }
    }

    pub(super) fn number(&self, key: &str) -> u64 {
        let ((_, data), _) = &self.values[key];
        u64::from_le_bytes(data.as_slice().try_into().expect("eight bytes"))
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.values["compression_algorithm"].0.1 == b"gzip"
    }

    /// Whether a record's two blocks say the same.
    pub(super) fn fit(&self, explicit: Options<'_>, derived: Options<'_>) -> bool {
        let told = |options: Options<'_>, explicit: bool| {
            let pairs = options.iter().map(move |(key, value)| {
                let kept: Kept = (value.kind, value.data.to_vec());
                (key.to_owned(), (kept, explicit))
            });
            pairs.collect::<Vec<_>>()
        };
        let mut all = told(explicit, true);
        all.extend(told(derived, false));
        let known = self.values.iter();
        let mut known: Vec<_> = known
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        known.sort();
        all.sort();
        all == known
    }

    /// Whether a description lists these as what is given where nobody asks.
    pub(super) fn is_described(&self, key: &str, kind: u8, default: &[u8]) -> bool {
        let known = self.values.get(key);
        known.is_some_and(|((of, data), _)| *of == kind && data == default)
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// A client's value in the one kind it is kept in; none if it may not be. What the workload never
/// sends (durations and sizes as text) is no value here.
fn kept(key: &'static str, value: Value<'_>, segments: &Segments) -> Option<Kept> {
    let word = value.as_text().map(str::to_ascii_lowercase);
    let words = |allowed: &[&str]| {
        let word = word.clone().filter(|word| allowed.contains(&&**word));
        word.map(|word| text(&word))
    };
    let given = match (value.kind, &word) {
        (kind::UINT64, _) => value.as_number(),
        (_, Some(word)) if word == "unlimited" => Some(NEVER),
        (_, Some(word)) if word == "server_default" => Some(0),
        _ => None,
    };
    let or = |default: u64| given.map(|given| if given == 0 { default } else { given });
    match key {
        "compression_algorithm" if value.kind == kind::UINT8 => match value.as_number()? {
            1 => Some(text("none")),
            2 => Some(text("gzip")),
            _ => None,
        },
        "compression_algorithm" => words(&["none", "gzip"]),
        "durability" | "consumer_offset_durability" => words(&["replicated", "persisted"]),
        "max_topic_size" | "message_expiry" => or(NEVER).map(number),
        "segment_size" => {
            let size = or(segments.usual)?;
            let fits = size % 512 == 0 && (segments.min..=segments.max).contains(&size);
            fits.then(|| number(size))
        }
        "size_of_messages_required_to_save" => {
            or(1 << 20).filter(|size| *size <= 1 << 30).map(number)
        }
        "messages_required_to_save" => {
            let count = match value.kind {
                kind::UINT32 => u32::try_from(value.as_number()?).ok(),
                _ => word?.parse().ok(),
            };
            let count = count.filter(|count| (1..=16_777_216).contains(count))?;
            Some((kind::UINT32, count.to_le_bytes().to_vec()))
        }
        _ => {
            let truth = match value.kind {
                kind::BOOL => value.as_bool()?,
                _ => word?.parse().ok()?,
            };
            Some((kind::BOOL, vec![u8::from(truth)]))
        }
    }
}
