#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tests/gpu/emulator/clique.hpp"
#include "tests/gpu/emulator/fault.hpp"

namespace emulated {

ncclComm_t add_clique(std::shared_ptr<Clique> clique);
std::shared_ptr<Clique> find_clique(ncclComm_t comm);
void remove_clique(ncclComm_t comm);

/// Keeps the message for ncclGetLastError and returns `result`.
ncclResult_t nccl_error(ncclResult_t result, const std::string& sentence);

/// A thread that is inside a communicator. A second thread inside the same communicator
/// ends the process.
class Presence {
  public:
    explicit Presence(Clique& clique);
    ~Presence() { clique_.inside = false; }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

  private:
    Clique& clique_;
};

/// Returns the result of work on a communicator's device. Exceptions of the work and
/// faults of the device also become results.
template <typename Work>
ncclResult_t on_device(const Clique& clique, const Work& work) {
    const auto fault = [&] {
        return is_faulted(clique.device())
                   ? nccl_error(ncclUnhandledCudaError,
                                "Cuda failure 'an illegal memory access was encountered'")
                   : ncclSuccess;
    };
    if (const ncclResult_t before = fault()) return before;
    try {
        const ncclResult_t result = work();
        return result == ncclSuccess ? fault() : result;
    } catch (const NcclTrouble& trouble) {
        return nccl_error(trouble.result(), trouble.what());
    }
}

/// A call that needs a communicator without work in progress and without an error.
template <typename Use>
ncclResult_t with_ready(ncclComm_t comm, const Use& use) {
    const std::shared_ptr<Clique> clique = find_clique(comm);
    if (!clique)
        return nccl_error(ncclInvalidArgument, "no communicator has this handle");
    const Presence presence(*clique);
    if (clique->state() == ncclInProgress)
        return nccl_error(ncclInvalidArgument,
                          "the communicator is used before its last call is done");
    if (clique->state() != ncclSuccess) return clique->state();
    return use(clique);
}

/// Starts work of a call that takes time. The communicator is in progress until the work
/// ends. A blocking communicator waits for the end of the work; in a group it waits at
/// the end of the group.
ncclResult_t start_job(const std::shared_ptr<Clique>& clique,
                       std::function<ncclResult_t()> job);

/// Adds an operation to the group. Without a group, runs it as a separate group.
ncclResult_t submit(const std::shared_ptr<Clique>& clique, cudaStream_t stream,
                    const Call& call);

}  // namespace emulated
