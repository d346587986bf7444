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

/// Keeps the sentence for ncclGetLastError; gives the result back.
ncclResult_t nccl_error(ncclResult_t result, const std::string& sentence);

/// One thread's presence in a communicator. A second thread in the same one ends the
/// process.
class Presence {
  public:
    explicit Presence(Clique& clique);
    ~Presence() { clique_.inside = false; }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

  private:
    Clique& clique_;
};

/// Returns what work on a communicator's device gives; its trouble, and a fault of the
/// device, as a result.
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

/// A call that needs a communicator with nothing in progress and nothing wrong.
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

/// Work that a call starts and that takes time. The communicator is in progress until it
/// is done; one that blocks waits for it, at the end of the group where there is one.
ncclResult_t start_job(const std::shared_ptr<Clique>& clique,
                       std::function<ncclResult_t()> job);

/// Notes an operation for the end of the group, or runs it as a group of its own.
ncclResult_t submit(const std::shared_ptr<Clique>& clique, cudaStream_t stream,
                    const Call& call);

}  // namespace emulated
