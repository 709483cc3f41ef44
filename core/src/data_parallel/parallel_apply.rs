//! One thread per device: `torch.nn.parallel.parallel_apply`.

use super::trace::gpu;
use crate::{Devices, Error, LogicalDevice, Result, check};
use c10d_sys::{autograd::ThreadState, stream::Stream};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{sync::Mutex, thread};
use tch_parallel_base::{error::of_panic, lock, random::SHARES_GENERATOR};

/// One thread per device, which is its current one. PyTorch's `parallel_apply` starts threads in each call; these stay.
///
/// ```
/// use tch_parallel::Devices;
/// use tch_parallel::data_parallel::Workers;
///
/// let devices: Devices = "2xcpu".parse()?;
/// let workers = Workers::new(&devices)?;
/// let results = workers.parallel_apply("square", vec![3, 4], |device, job: i32| {
///     Ok((device.to_string(), job * job))
/// })?;
/// assert_eq!(results, [("cpu:0".to_owned(), 9), ("cpu:1".to_owned(), 16)]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct Workers {
    devices: Devices,
    pool: ThreadPool,
}

impl Workers {
    /// Starts the threads, which then wait for jobs.
    ///
    /// # Errors
    /// [`Error::Argument`] if the system cannot start enough threads.
    pub fn new(devices: &Devices) -> Result<Self> {
        let names: Vec<_> = devices.iter().map(|device| format!("replica {device}")).collect();
        let shares_generator = devices.len() > 1 && gpu(devices.first()).is_none();
        let pool = ThreadPoolBuilder::new()
            .num_threads(devices.len())
            .thread_name(move |index| names[index].clone())
            .start_handler(move |_| SHARES_GENERATOR.set(shares_generator))
            .build()
            .map_err(|error| {
                let n = devices.len();
                let found = format!("{n} devices, for which no threads could be started: {error}");
                let expected = "no more than this system can start threads for";
                Error::argument("devices", found, expected)
            })?;
        Ok(Workers { devices: devices.clone(), pool })
    }

    /// Runs `f` on all jobs in parallel, job `i` on the thread of device `i`, and returns the results in the order of
    /// the jobs when all have finished. There may be fewer jobs than devices. With one device, the job runs on the
    /// caller's thread. `operation` is its name in errors.
    ///
    /// The threads inherit the caller's grad mode, autocast, profiler, OpenMP threads, and current stream per GPU.
    ///
    /// # Errors
    /// The error of the first device, in their order, that has one; [`Error::Replica`] for a panic, which is how tch's
    /// operations fail. [`Error::Argument`] for more jobs than devices, and if called within a job of these threads.
    pub fn parallel_apply<J: Send, R: Send>(
        &self,
        operation: &'static str,
        jobs: Vec<J>,
        f: impl Fn(LogicalDevice, J) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let found = format_args!("{} for {} devices", jobs.len(), self.devices.len());
        check(jobs.len() <= self.devices.len(), "jobs", found, "at most one for each device")?;
        let expected = "other workers, because these are busy";
        check(!self.own_this_thread(), "workers", "used within one of their own jobs", expected)?;
        let state = ThreadState::of_this_thread().map_err(in_the_engine)?;
        let threads = tch::get_num_threads();
        // Where the caller has queued what the jobs need; a thread's own stream would not wait for that.
        let stream = |device| gpu(device).map(Stream::current).transpose().map_err(in_the_engine);
        let streams = self.devices.iter().map(stream).collect::<Result<Vec<_>>>()?;
        // A thread takes only its own job; the mutex proves that to the compiler.
        let jobs: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
        let run = |index: usize| {
            let job = lock(jobs.get(index)?).take()?;
            let device = self.devices.get(index);
            Some(device.and_then(|device| {
                let _on = device.guard()?;
                let _stream =
                    streams[index].map(Stream::guard).transpose().map_err(in_the_engine)?;
                if tch::get_num_threads() != threads {
                    tch::set_num_threads(threads);
                }
                let outcome = state.run(|| catch_unwind(AssertUnwindSafe(|| f(device, job))));
                outcome.map_err(in_the_engine)?.unwrap_or_else(|panic| {
                    Err(Error::Replica { device, operation, message: of_panic(&*panic) })
                })
            }))
        };
        let on_all_threads = || self.pool.broadcast(|context| run(context.index()));
        let outcomes = if self.devices.len() == 1 {
            // With one device there is nothing to run in parallel.
            vec![run(0)]
        } else if rayon::current_thread_index().is_none() {
            on_all_threads()
        } else {
            // While it waits, a thread of another pool would start other work of that pool in the middle of ours.
            thread::scope(|scope| scope.spawn(on_all_threads).join())
                .unwrap_or_else(|panic| resume_unwind(panic))
        };
        outcomes.into_iter().flatten().collect()
    }

    pub(super) fn own_this_thread(&self) -> bool {
        self.pool.current_thread_index().is_some()
    }
}

fn in_the_engine(error: c10d_sys::Error) -> Error {
    Error::engine("parallel_apply")(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use tch::no_grad;

    fn workers(count: usize) -> Workers {
        Workers::new(&Devices::cpu(count).unwrap()).unwrap()
    }

    #[test]
    fn jobs_run_at_the_same_time_each_on_its_devices_thread() {
        // No job passes before all three have arrived.
        let barrier = Barrier::new(3);
        let names = workers(3).parallel_apply("test", vec![10, 20, 30], |device, job| {
            barrier.wait();
            let name = thread::current().name().map(str::to_owned).unwrap_or_default();
            Ok(format!("{name} got {job} on {device}"))
        });
        let expected = [(0, 10), (1, 20), (2, 30)];
        let expected = expected.map(|(i, job)| format!("replica cpu:{i} got {job} on cpu:{i}"));
        assert_eq!(names.unwrap(), expected);
    }

    #[test]
    fn a_job_without_a_device_and_a_job_within_a_job_are_refused() {
        let workers = workers(2);
        let error = workers.parallel_apply("test", vec![1, 2, 3], |_, job| Ok(job)).unwrap_err();
        let expected = "jobs is 3 for 2 devices, but must be at most one for each device";
        assert_eq!(error.to_string(), expected);
        let nested = |_, job| workers.parallel_apply("inner", vec![job], |_, job: i32| Ok(job));
        let error = workers.parallel_apply("outer", vec![1, 2], nested).unwrap_err().to_string();
        assert!(error.contains("used within one of their own jobs"), "{error}");
    }

    #[test]
    fn the_callers_grad_mode_is_the_threads() {
        let workers = workers(2);
        let grad_mode = |_, ()| Ok(c10d_sys::tensor::grad_enabled());
        let grad_modes = || workers.parallel_apply("test", vec![(); 2], grad_mode).unwrap();
        assert_eq!(no_grad(grad_modes), [false, false]);
        assert_eq!(grad_modes(), [true, true]);
    }
}
