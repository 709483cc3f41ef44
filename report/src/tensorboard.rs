//! Metrics as TensorBoard's event files.

use crate::{record_file::RecordFile, unix_seconds};
use prost::Message;
use serde_json::Value;
use std::{collections::HashMap, path::Path};
use tch_parallel::Result;

/// Writes the numbers of events as scalars. `tensorboard --logdir DIR` shows a curve for each, named
/// `event/field`, over the epoch for what comes once an epoch, and otherwise over how many events of that name the file
/// already has.
///
/// As `torch.utils.tensorboard.SummaryWriter.add_scalar`; a record is in the file when [`log`](Self::log) returns.
#[derive(Debug)]
pub(crate) struct TensorBoard {
    file: RecordFile,
    /// How many events of each name there have been.
    events: HashMap<String, i64>,
}

/// `tensorflow.Event`, as far as scalars need it.
#[derive(Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`
#[derive(Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Scalar>,
}

/// `tensorflow.Summary.Value`
#[derive(Message)]
struct Scalar {
    #[prost(string, tag = "1")]
    tag: String,
    /// Without `optional`, 0 would be left out, and with it the point.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

impl TensorBoard {
    /// Creates a file in `dir`, beside those of earlier runs.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let name = format!("events.out.tfevents.{:017.6}.{}", unix_seconds(), std::process::id());
        let file = RecordFile::create(dir, &name)?;
        let mut board = TensorBoard { file, events: HashMap::new() };
        let file_version = Some("brain.Event:2".to_owned());
        board.write(&Event { wall_time: unix_seconds(), step: 0, file_version, summary: None })?;
        Ok(board)
    }

    /// Writes the numbers among `fields`, except where in the training they were measured.
    pub(crate) fn log(&mut self, event: &str, fields: &Value) -> Result<()> {
        let mut value = Vec::new();
        scalars(event, fields, &mut value);
        let count = self.events.entry(event.to_owned()).or_default();
        let step = match (&fields["step"], fields["epoch"].as_i64()) {
            (Value::Null, Some(epoch)) => epoch,
            _ => *count,
        };
        *count += 1;
        if value.is_empty() {
            return Ok(());
        }
        let summary = Some(Summary { value });
        self.write(&Event { wall_time: unix_seconds(), step, file_version: None, summary })
    }

    /// Appends a record: its length and its bytes, each with a checksum.
    fn write(&mut self, event: &Event) -> Result<()> {
        let bytes = event.encode_to_vec();
        let length = (bytes.len() as u64).to_le_bytes();
        let (first, last) = (masked_crc(&length), masked_crc(&bytes));
        let record = [&length[..], &first, &bytes, &last].concat();
        self.file.append(&record)
    }
}

fn scalars(tag: &str, fields: &Value, found: &mut Vec<Scalar>) {
    match fields {
        Value::Object(fields) => {
            let measured = fields.iter().filter(|(name, _)| *name != "epoch" && *name != "step");
            measured.for_each(|(name, field)| scalars(&format!("{tag}/{name}"), field, found));
        }
        Value::Array(fields) => {
            let elements = fields.iter().enumerate();
            elements.for_each(|(index, field)| scalars(&format!("{tag}/{index}"), field, found));
        }
        other => {
            let scalar =
                |number: f64| Scalar { tag: tag.to_owned(), simple_value: Some(number as f32) };
            found.extend(other.as_f64().map(scalar));
        }
    }
}

/// The checksum of TensorFlow's records, a CRC that may itself be part of what has one.
fn masked_crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    /// All events of the only file in a directory.
    fn events(dir: &Path) -> Vec<Event> {
        let files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() == 1 && files[0].to_string_lossy().contains("tfevents"), "{files:?}");
        let file = fs::read(&files[0]).unwrap();
        let mut rest = &file[..];
        let mut events = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(rest[8..12], masked_crc(&rest[..8]));
            assert_eq!(rest[12 + length..16 + length], masked_crc(&rest[12..12 + length]));
            events.push(Event::decode(&rest[12..12 + length]).unwrap());
            rest = &rest[16 + length..];
        }
        events
    }

    #[test]
    fn numbers_become_scalars_over_the_epoch_or_the_count_of_their_event() {
        let dir = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(&dir.path().join("a/b")).unwrap();
        board.log("step", &json!({ "epoch": 0, "step": 7, "loss": 0.5f32, "name": "x" })).unwrap();
        board.log("epoch", &json!({ "epoch": 3, "memory": { "peak": [0, 4] } })).unwrap();
        board.log("step", &json!({ "epoch": 1, "step": 0, "loss": 0.25f32 })).unwrap();
        let events = events(&dir.path().join("a/b"));
        assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
        let found: Vec<_> = events[1..]
            .iter()
            .flat_map(|event| {
                assert!(event.wall_time > 1.7e9);
                let values = &event.summary.as_ref().unwrap().value;
                values.iter().map(|scalar| (event.step, &*scalar.tag, scalar.simple_value.unwrap()))
            })
            .collect();
        let expected = [
            (0, "step/loss", 0.5),
            (3, "epoch/memory/peak/0", 0.0),
            (3, "epoch/memory/peak/1", 4.0),
            (1, "step/loss", 0.25),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_checksum_is_tensorflows() {
        // Of the eight bytes of the length 24, with which the file of every SummaryWriter begins.
        assert_eq!(masked_crc(&24u64.to_le_bytes()), 0x224b_7fa3_u32.to_le_bytes());
    }
}
