//! What comes back, and what is refused. `tests/tests/state_dict.rs` has Python's own files.

use super::*;
use std::fs;
use tch::Device;

/// The file of a tensor of each kind, one of them without elements and two of them views.
fn file() -> (Vec<(String, Tensor)>, Vec<u8>) {
    let mut tensors: Vec<_> = STORAGES
        .iter()
        .map(|(name, kind)| (name.to_string(), Tensor::from_slice(&[1i64, 0, 1]).to_kind(*kind)))
        .collect();
    tensors.push(("empty".into(), Tensor::zeros([3, 0, 2], (Kind::Float, Device::Cpu))));
    tensors.push(("number".into(), Tensor::from(7i64)));
    let view = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([3, 4]).tr();
    tensors.push(("a view".into(), view));
    tensors.push(("negated".into(), Tensor::from_slice(&[1f32, 2.0]).internal_neg_view()));
    let bytes = written(&tensors, &Metadata::from([("training".into(), "{}".into())]));
    (tensors, bytes)
}

fn written(tensors: &[(String, Tensor)], metadata: &Metadata) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    to_file(tensors, metadata, file.path()).unwrap();
    fs::read(file.path()).unwrap()
}

/// The file with this pickle, and with one storage of the floats 0, 1, 2.
fn with_pickle(pickle: &[u8]) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut archive = Writer::new(file.as_file_mut());
    archive.write("data.pkl", pickle).unwrap();
    let floats: Vec<u8> = [0f32, 1.0, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    archive.write("data/0", &floats).unwrap();
    archive.finish().unwrap();
    fs::read(file.path()).unwrap()
}

/// The pickle of {"x": a tensor of three floats}.
fn pickle() -> Vec<u8> {
    let mut pickler = Pickler::new();
    pickler.tensor("x", "FloatStorage", "0", &[3]);
    pickler.finish()
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

fn read_all(bytes: &[u8]) -> Result<(NamedTensors, Metadata)> {
    from_bytes(Path::new("model.pt"), bytes)
}

fn refused(pickle: &[u8]) -> String {
    read_all(&with_pickle(pickle)).unwrap_err().to_string()
}

fn assert_refused(pickle: &[u8], what: &str) {
    let error = refused(pickle);
    assert!(error.contains(what), "{error}");
}

#[test]
fn tensors_of_all_kinds_and_texts_come_back() {
    let (tensors, bytes) = file();
    let (read, metadata) = read_all(&bytes).unwrap();
    assert_eq!(read.len(), tensors.len());
    for (name, tensor) in &tensors {
        let found = &read[name];
        assert_eq!((found.kind(), found.size()), (tensor.kind(), tensor.size()), "{name}");
        assert_eq!(found, tensor, "{name}");
    }
    assert_eq!(metadata["training"], "{}");
}

#[test]
fn equal_tensors_make_equal_files_with_aligned_storages() {
    let tensors = [("x".to_owned(), Tensor::from_slice(&[[1.5f32; 4]; 8].concat()))];
    let bytes = written(&tensors, &Metadata::new());
    assert_eq!(bytes, written(&tensors, &Metadata::new()));
    let storage: Vec<u8> = [1.5f32; 32].iter().flat_map(|x| x.to_le_bytes()).collect();
    let at = bytes.windows(storage.len()).position(|window| window == storage).unwrap();
    assert_eq!(at % 64, 0);
}

#[test]
fn a_kind_that_has_no_storage_is_refused_by_name() {
    let tensor = Tensor::ones([2], (Kind::Float8e4m3fn, Device::Cpu));
    let error = to_file(&[("x".into(), tensor)], &Metadata::new(), Path::new("/dev/null"));
    let error = error.unwrap_err().to_string();
    let expected = "x is of kind Float8e4m3fn, but must be of one of [Float,";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_tensor_of_a_gpu_is_loaded_where_there_is_none() {
    let of_gpu = replaced(&pickle(), b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0");
    let (tensors, _) = read_all(&with_pickle(&of_gpu)).unwrap();
    assert_eq!(tensors["x"], Tensor::from_slice(&[0f32, 1.0, 2.0]));
    assert_eq!(tensors["x"].device(), Device::Cpu);
}

#[test]
fn a_pickle_that_would_run_a_program_is_refused_by_its_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let command = format!("rm {}", file.path().display());
    let mut evil = b"\x80\x02cposix\nsystem\nX".to_vec();
    evil.extend((command.len() as u32).to_le_bytes());
    evil.extend(command.bytes());
    evil.extend(b"\x85R.");
    let error = refused(&evil);
    let expected = "model.pt: a pickle with posix.system; expected tensors by name, as \
                    torch.save(model.state_dict(), …) writes them; nothing else in a file is called";
    assert_eq!(error, expected);
    assert!(file.path().exists());
    // Under the name of a type that a state dict has, too.
    assert_refused(b"\x80\x02cbuiltins\nFloatStorage\n.", "builtins.FloatStorage");
}

#[test]
fn other_operations_and_protocols_are_named_and_what_is_no_state_dict_is_refused() {
    for (pickle, what) in [
        (&b"\x80\x04."[..], "a pickle with the protocol 4"),
        (b"\x80\x02\x8f.", "a pickle with the operation 0x8f"),
        (b"\x80\x02K\x01.", "no dict with names"),
        (b"\x80\x02}K\x01K\x02s.", "no dict with names"),
        (b"\x80\x02}X\x05\0\0\0epochK\x02s.", "\"epoch\" is no tensor"),
    ] {
        assert_refused(pickle, what);
    }
}

/// A pickle of {key: {"x": tensor}, …, "epoch": 3}.
fn nested(keys: &[&str]) -> Vec<u8> {
    let tensor = pickle();
    let inner = &tensor[2..tensor.len() - 1];
    let mut pickle = b"\x80\x02}(".to_vec();
    for key in keys {
        pickle.extend([b'X', key.len() as u8, 0, 0, 0]);
        pickle.extend(key.bytes());
        pickle.extend(inner);
    }
    pickle.extend(b"X\x05\0\0\0epochK\x03u.");
    pickle
}

#[test]
fn the_one_state_dict_among_other_entries_is_taken() {
    let (tensors, _) = read_all(&with_pickle(&nested(&["state_dict"]))).unwrap();
    assert_eq!(tensors.into_keys().collect::<Vec<_>>(), ["x"]);
    let expected = "model.pt: the dicts [\"model\", \"ema\"]; expected a state dict: python -c \
                    \"import torch; torch.save(torch.load('model.pt', 'cpu')['model'], 'new.pt')\"";
    assert_eq!(refused(&nested(&["model", "ema"])), expected);
}

#[test]
fn a_view_that_leaves_its_storage_is_refused() {
    let three = b"(J\x03\0\0\0t(J";
    let sized = |number: &[u8]| replaced(&pickle(), three, &[b"(", number, b"t(J"].concat());
    assert!(read_all(&with_pickle(&sized(b"J\x02\0\0\0"))).is_ok());
    for number in [
        &b"J\x04\0\0\0"[..],
        b"J\xff\xff\xff\x7f",
        b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"J\xff\xff\xff\xff", // -1
        b"\x8a\x09\0\0\0\0\0\0\0\0\x01",
    ] {
        assert_refused(&sized(number), "not a complete PyTorch file");
    }
    let stride = b"t(\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let far = replaced(&pickle(), b"t(J\x01\0\0\0", stride);
    assert_refused(&far, "not a complete PyTorch file");
    let offset = replaced(&pickle(), b"QJ\0\0\0\0", b"QJ\x01\0\0\0");
    assert_refused(&offset, "out of bounds for storage of size 12");
    let before = replaced(&pickle(), b"QJ\0\0\0\0", b"QJ\xff\xff\xff\xff");
    assert_refused(&before, "not a complete PyTorch file");
}

#[test]
fn a_storage_of_another_size_than_the_pickle_says_is_refused() {
    let more = replaced(&pickle(), b"cpuJ\x03\0\0\0", b"cpuJ\x04\0\0\0");
    assert_refused(&more, "(data/0 has 12 bytes for 4 numbers of Float)");
    let huge =
        replaced(&pickle(), b"cpuJ\x03\0\0\0", b"cpu\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
    assert_refused(&huge, "numbers of Float");
}

#[test]
fn a_pickle_that_is_nested_a_million_times_is_no_danger() {
    let mut deep = b"\x80\x02)".to_vec();
    deep.extend([op::TUPLE1].repeat(1_000_000));
    deep.push(op::STOP);
    assert_refused(&deep, "no dict with names");
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused_and_no_more() {
    let (_, whole) = file();
    let mut bytes = whole.clone();
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            bytes[at] ^= change;
            if let Ok((tensors, _)) = read_all(&bytes) {
                tensors.values().for_each(|tensor| drop(tensor.contiguous()));
            }
            bytes[at] = whole[at];
        }
    }
}

#[test]
fn a_number_that_has_changed_is_noticed_by_the_checksum() {
    let changed = replaced(&with_pickle(&pickle()), &1f32.to_le_bytes(), &1.5f32.to_le_bytes());
    let error = read_all(&changed).unwrap_err().to_string();
    assert!(error.contains("data/0: Invalid checksum"), "{error}");
}

#[test]
fn a_pickle_that_is_cut_off_is_damaged_at_every_length() {
    let whole = pickle();
    for length in 0..whole.len() {
        let error = unpickle(&whole[..length]).unwrap_err();
        assert!(matches!(error, Refusal::Damaged(_)), "{length}: {error:?}");
    }
}
