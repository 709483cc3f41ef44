// Files in memory, without a name, that processes of one host map to exchange data.
#pragma once

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace c10d_sys {

// A mapped file. No file system knows it, so nothing has to be cleaned up: the kernel frees it when
// the last process that maps it has ended, in whatever way. A forked child does not inherit the
// mapping, because it would write into its parent's tensors.
class SharedFile {
 public:
  SharedFile() = default;
  SharedFile(SharedFile&& other) noexcept { swap(other); }
  SharedFile& operator=(SharedFile&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SharedFile() {
    if (is_mapped()) {
      munmap(data_, size_);
    }
    close();
  }

  // A file of zeros. Memory is used only for what is written to.
  static SharedFile create(size_t size) {
    // Beyond this limit, ftruncate would end the process with SIGXFSZ.
    check_limit(RLIMIT_FSIZE, "the length of files is limited (ulimit -f)");
    // The job may need what this leaves.
    check_limit(RLIMIT_AS, "the address space is limited (ulimit -v)");
    int overcommit = 0;
    std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
    // Writing would then end the process with SIGBUS if memory runs out.
    TORCH_CHECK(overcommit != 2, "vm.overcommit_memory is 2");
    SharedFile file;
    file.descriptor_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(file.descriptor_ >= 0, "memfd_create");
    check(ftruncate(file.descriptor_, static_cast<off_t>(size)) == 0, "ftruncate");
    // If another process could shrink the file, reading it could end this process with SIGBUS.
    check(fcntl(file.descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "F_ADD_SEALS");
    file.map(size);
    return file;
  }

  // A file that process `process` has created and has open under the number `descriptor`.
  static SharedFile open(pid_t process, int descriptor, size_t size) {
    const auto path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
    // Opening something else, a pipe for instance, could block or have effects.
    char target[64] = {};
    const std::string expected = std::string("/memfd:") + kName;
    check(readlink(path.c_str(), target, sizeof(target) - 1) > 0, path);
    TORCH_CHECK(expected.compare(0, expected.size(), target, expected.size()) == 0, path, " is another file");
    SharedFile file;
    file.descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    check(file.descriptor_ >= 0, path);
    struct stat status {};
    check(fstat(file.descriptor_, &status) == 0, path);
    TORCH_CHECK(static_cast<size_t>(status.st_size) == size, path, " has another size");
    file.map(size);
    return file;
  }

  char* data() const { return data_; }
  // False in a forked child, where other things may lie at these addresses.
  bool is_mapped() const { return data_ != nullptr && process_ == getpid(); }
  int descriptor() const { return descriptor_; }

  // From now on no process can open the file any more. It stays mapped.
  void close() {
    if (descriptor_ >= 0) {
      ::close(std::exchange(descriptor_, -1));
    }
  }

 private:
  static constexpr const char* kName = "tch-parallel";

  static void check_limit(__rlimit_resource_t resource, const char* otherwise) {
    rlimit limit{};
    check(getrlimit(resource, &limit) == 0, "getrlimit");
    TORCH_CHECK(limit.rlim_cur == RLIM_INFINITY, otherwise);
  }

  static void check(bool succeeded, const std::string& what) {
    TORCH_CHECK(succeeded, what, ": ", std::strerror(errno));
  }

  void map(size_t size) {
    void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
    check(data != MAP_FAILED, "mmap");
    data_ = static_cast<char*>(data);
    size_ = size;
    process_ = getpid();
    check(madvise(data_, size_, MADV_DONTFORK) == 0, "MADV_DONTFORK");
    check(madvise(data_, size_, MADV_DONTDUMP) == 0, "MADV_DONTDUMP");
  }

  void swap(SharedFile& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(process_, other.process_);
  }

  char* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
  pid_t process_ = 0;
};

} // namespace c10d_sys
