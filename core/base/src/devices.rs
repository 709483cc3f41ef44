//! The devices that replicas of a model share a batch on.

use crate::{Error, LogicalDevice, Result, check, device::kind, device::named, device::number};
use std::{fmt, str::FromStr};
use tch::{Cuda, Device};

/// The devices that share a batch: at least one, all of one kind, all different. PyTorch's `device_ids`.
///
/// Written as a list, `cuda:0,cuda:1`, in which `cpu:4` is one device, the fifth; `4xcpu` is short for
/// `cpu:0,cpu:1,cpu:2,cpu:3`, and `cuda` for all GPUs on this host. (An `x`, since some shells take a star for a
/// pattern of file names.) Devices are printed as a list, which reads back as the same devices.
///
/// ```
/// use tch_parallel::Devices;
///
/// let devices: Devices = "2xcpu".parse()?;
/// assert_eq!(devices.len(), 2);
/// assert_eq!(devices.to_string(), "cpu:0,cpu:1");
/// assert_eq!("cpu:0,cpu:1".parse::<Devices>()?, devices);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices(Vec<LogicalDevice>);

impl Devices {
    /// The listed devices, the first of which holds the original model.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty list, a device that does not exist or comes twice, and CPUs mixed with GPUs.
    pub fn new(devices: impl IntoIterator<Item = LogicalDevice>) -> Result<Self> {
        let devices: Vec<_> = devices.into_iter().collect();
        let expected = "at least one device, such as 2xcpu or cuda:0,cuda:1";
        let first = devices.first().ok_or_else(|| Error::argument("devices", "empty", expected))?;
        for (position, device) in devices.iter().enumerate() {
            let expected = "a list of different devices: replicas that share one gain nothing";
            let found = format!("a list with {device} twice");
            check(!devices[..position].contains(device), "devices", found, expected)?;
            let is_alike = Device::from(*device).is_cuda() == Device::from(*first).is_cuda();
            let found = format!("a list with {first} and {device}");
            check(is_alike, "devices", found, "all of one kind")?;
        }
        devices.iter().try_for_each(|device| device.check().map(drop))?;
        Ok(Devices(devices))
    }

    /// The logical devices `cpu:0` to `cpu:{count - 1}`.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0, and for more than there are logical devices.
    pub fn cpu(count: usize) -> Result<Self> {
        Devices::first_of(LogicalDevice::Cpu, count)
    }

    /// All GPUs on this host.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is none.
    pub fn cuda() -> Result<Self> {
        LogicalDevice::Cuda(0).check()?;
        Devices::first_of(LogicalDevice::Cuda, Cuda::device_count().max(0) as usize)
    }

    fn first_of(kind: fn(usize) -> LogicalDevice, count: usize) -> Result<Self> {
        // Before the list is made: a count that is typed can be of any size.
        if let Some(last) = count.checked_sub(1) {
            kind(last).check()?;
        }
        Devices::new((0..count).map(kind))
    }

    /// The first device, which holds the original model. `device_ids[0]`
    pub fn first(&self) -> LogicalDevice {
        self.0[0]
    }

    /// The device at a position of the list.
    ///
    /// # Errors
    /// [`Error::Argument`] for an index beyond the end.
    pub fn get(&self, position: usize) -> Result<LogicalDevice> {
        self.0.get(position).copied().ok_or_else(|| {
            let expected = format!("below {}, the number of devices in {self}", self.len());
            Error::argument("device number", position, expected)
        })
    }

    /// The number of devices.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order of their parts of a batch.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LogicalDevice> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|device| device.to_string()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Devices {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "cuda" {
            return Devices::cuda();
        }
        let counted =
            text.split_once('x').and_then(|(count, name)| Some((kind(name)?, number(count)?)));
        if let Some((kind, count)) = counted {
            return Devices::first_of(kind, count);
        }
        let devices = text.split(',').map(|name| {
            named(name).ok_or_else(|| {
                let expected = "a list such as cuda:0,cuda:1, or 4xcpu for four logical devices";
                Error::argument("devices", format!("{text:?}"), expected)
            })
        });
        Devices::new(devices.collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c10d_sys::memory::CPU_DEVICES;

    fn parsed(text: &str) -> std::result::Result<String, String> {
        text.parse::<Devices>().map(|d| d.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_count_of_logical_devices_is_a_list_of_them_and_an_index_is_one() {
        assert_eq!(parsed("3xcpu").unwrap(), "cpu:0,cpu:1,cpu:2");
        assert_eq!(parsed("cpu").unwrap(), "cpu:0");
        assert_eq!(parsed("cpu:4").unwrap(), "cpu:4");
    }

    #[test]
    fn what_is_printed_reads_back_as_the_same() {
        let all = (0..CPU_DEVICES).map(LogicalDevice::Cpu);
        for device in all.clone() {
            assert_eq!(device.to_string().parse::<LogicalDevice>().unwrap(), device);
        }
        // GPUs that do not exist here have names as well.
        for device in (0..CPU_DEVICES).map(LogicalDevice::Cuda) {
            assert_eq!(named(&device.to_string()), Some(device));
        }
        let counts = (1..=CPU_DEVICES).map(|count| Devices::cpu(count).unwrap());
        let rotated = (0..CPU_DEVICES)
            .map(|by| Devices::new(all.clone().cycle().skip(by).take(CPU_DEVICES)).unwrap());
        let pairs = all.clone().flat_map(|a| {
            let others = all.clone().filter(move |b| *b != a);
            others.map(move |b| Devices::new([a, b]).unwrap())
        });
        let alone = all.clone().map(|device| Devices::new([device]).unwrap());
        for devices in counts.chain(rotated).chain(pairs).chain(alone) {
            assert_eq!(devices.to_string().parse::<Devices>().unwrap(), devices);
        }
    }

    #[test]
    fn what_is_no_list_of_devices_is_refused() {
        let mixed = "devices is a list with cuda:0 and cpu:1, but must be all of one kind";
        for (text, expected) in [
            ("0xcpu", "devices is empty, but must be at least one device, such as 2xcpu"),
            ("65xcpu", "device is cpu:64, but must be one of cpu:0 to cpu:63"),
            ("cpu:64", "device is cpu:64, but must be one of cpu:0 to cpu:63"),
            ("99999999999999999999xcpu", "device is cpu:"),
            ("cpu:1,cpu:1", "devices is a list with cpu:1 twice, but must be a list of different"),
            ("cuda:0,cuda:0", "devices is a list with cuda:0 twice"),
            ("cuda:0,cpu:1", mixed),
            ("gpu:0", "devices is \"gpu:0\", but must be a list such as cuda:0,cuda:1, or 4xcpu"),
            ("cpu*4", "devices is \"cpu*4\", but must be a list such as"),
            ("cpu:x", "devices is \"cpu:x\", but must be a list such as"),
            ("2xcpu,cpu:5", "devices is \"2xcpu,cpu:5\", but must be a list such as"),
            ("", "devices is \"\""),
            ("cuda:99999999999999999999", "device is cuda:"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
