#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/include/nccl.h"
#include "tests/gpu/emulator/meeting.hpp"
#include "tests/gpu/emulator/nccl_calls.hpp"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

namespace {

using Cliques = Handles<ncclComm_t, Clique>;

struct LastError {
    std::mutex mutex;
    std::string sentence;
};

}  // namespace

ncclComm_t add_clique(std::shared_ptr<Clique> clique) {
    return immortal<Cliques>().add(std::move(clique));
}

std::shared_ptr<Clique> find_clique(ncclComm_t comm) {
    return immortal<Cliques>().find(comm);
}

void remove_clique(ncclComm_t comm) {
    immortal<Cliques>().remove(comm);
}

ncclResult_t nccl_error(ncclResult_t result, const std::string& sentence) {
    const std::lock_guard lock(immortal<LastError>().mutex);
    immortal<LastError>().sentence = sentence;
    return result;
}

Presence::Presence(Clique& clique) : clique_(clique) {
    if (clique.inside.exchange(true))
        die("two threads are inside one NCCL communicator at the same time");
}

}  // namespace emulated

using namespace emulated;

namespace {

constexpr unsigned kMagic = 0xcafebeef;

ncclResult_t check_config(const ncclConfig_t* config) {
    if (config != nullptr && config->magic != kMagic)
        return nccl_error(ncclInvalidArgument,
                          "the configuration was not set to NCCL_CONFIG_INITIALIZER");
    if (config != nullptr && config->blocking != NCCL_CONFIG_UNDEF_INT &&
        config->blocking != 0 && config->blocking != 1)
        return nccl_error(ncclInvalidArgument, "blocking is neither 0 nor 1");
    return ncclSuccess;
}

bool blocks(const ncclConfig_t* config, bool otherwise) {
    if (config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT) return otherwise;
    return config->blocking == 1;
}

ncclResult_t connect(const std::shared_ptr<Clique>& clique) {
    return on_device(*clique, [&] {
        clique->connect();
        return ncclSuccess;
    });
}

/// The choice that each rank passes to a split.
struct Choice {
    int color;
    int key;
};

/// Returns this rank's new communicator; null if the rank belongs to none.
std::shared_ptr<Clique> part_of(Clique& whole, Choice mine, bool blocking) {
    const std::string name = whole.name() + "/" + std::to_string(whole.next_split());
    const std::vector<Choice> choices =
        exchange(name, whole.rank(), whole.size(), mine, [&] { return whole.aborted(); });
    if (mine.color == NCCL_SPLIT_NOCOLOR) return nullptr;
    std::vector<int> members;
    for (int rank = 0; rank < whole.size(); ++rank)
        if (choices[static_cast<std::size_t>(rank)].color == mine.color)
            members.push_back(rank);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return choices[static_cast<std::size_t>(a)].key <
               choices[static_cast<std::size_t>(b)].key;
    });
    const auto place = std::find(members.begin(), members.end(), whole.rank());
    return std::make_shared<Clique>(name + "." + std::to_string(mine.color),
                                    static_cast<int>(place - members.begin()),
                                    static_cast<int>(members.size()), whole.device(),
                                    blocking);
}

ncclResult_t split(const std::shared_ptr<Clique>& whole, Choice mine, bool blocking,
                   ncclComm_t* result) {
    return on_device(*whole, [&] {
        const std::shared_ptr<Clique> part = part_of(*whole, mine, blocking);
        if (!part) return ncclSuccess;
        part->connect();
        part->set_state(ncclSuccess);
        *result = add_clique(part);
        return ncclSuccess;
    });
}

/// Like NCCL, writes to standard output if NCCL_DEBUG is INFO and NCCL_DEBUG_FILE is not
/// set.
void report(const std::string& what) {
    const char* level = std::getenv("NCCL_DEBUG");
    if (level == nullptr || std::string(level) != "INFO" ||
        std::getenv("NCCL_DEBUG_FILE") != nullptr)
        return;
    std::printf("emulated NCCL INFO %s\n", what.c_str());
    std::fflush(stdout);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
    *version = settings().nccl_version;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    constexpr const char* kTexts[] = {
        "no error",
        "unhandled cuda error",
        "unhandled system error",
        "internal error",
        "invalid argument",
        "invalid usage",
        "remote process exited or there was a network error",
        "NCCL operation in progress"};
    return result >= 0 && result < ncclNumResults ? kTexts[result]
                                                  : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
    thread_local std::string sentence;
    const std::lock_guard lock(immortal<LastError>().mutex);
    sentence = immortal<LastError>().sentence;
    return sentence.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    if (id == nullptr) return nccl_error(ncclInvalidArgument, "no place for the id");
    if (begin() != cudaSuccess)
        return nccl_error(ncclUnhandledCudaError, "no GPU can be used");
    std::memset(id->internal, 0, sizeof id->internal);
    std::string text;
    if (const char* meeting_place = std::getenv("NCCL_COMM_ID")) {
        text = meeting_place;
    } else {
        std::random_device random;
        for (int word = 0; word < 4; ++word)
            text += std::to_string(random()) + ".";
    }
    std::memcpy(id->internal, text.data(),
                std::min(text.size(), sizeof id->internal - 1));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
    if (comm == nullptr || nranks < 1 || rank < 0 || rank >= nranks)
        return nccl_error(
            ncclInvalidArgument,
            "rank " + std::to_string(rank) + " is not one of " + std::to_string(nranks));
    *comm = nullptr;
    if (const ncclResult_t wrong = check_config(config)) return wrong;
    if (begin() != cudaSuccess)
        return nccl_error(ncclUnhandledCudaError, "no GPU can be used");
    id.internal[sizeof id.internal - 1] = '\0';
    report("ncclCommInitRankConfig rank " + std::to_string(rank) + " nranks " +
           std::to_string(nranks));
    auto clique = std::make_shared<Clique>(id.internal, rank, nranks, current_device(),
                                           blocks(config, true));
    *comm = add_clique(clique);
    const ncclResult_t result = start_job(clique, [clique] { return connect(clique); });
    if (result != ncclSuccess && result != ncclInProgress) {
        remove_clique(*comm);
        *comm = nullptr;
    }
    return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
    return with_ready(comm, [&](const std::shared_ptr<Clique>& whole) {
        if (newcomm == nullptr || color < NCCL_SPLIT_NOCOLOR)
            return nccl_error(ncclInvalidArgument,
                              "a color is from 0, or NCCL_SPLIT_NOCOLOR");
        if (const ncclResult_t wrong = check_config(config)) return wrong;
        if (whole->busy())
            return nccl_error(ncclInvalidUsage,
                              "a communicator is split while its operations run");
        *newcomm = nullptr;
        const bool blocking = blocks(config, whole->blocking());
        return start_job(whole, [whole, color, key, blocking, newcomm] {
            return split(whole, {color, key}, blocking, newcomm);
        });
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    return with_ready(comm, [](const std::shared_ptr<Clique>& clique) {
        if (clique->finalized.exchange(true))
            return nccl_error(ncclInvalidArgument,
                              "the communicator was finalized before");
        return start_job(clique, [clique] {
            return on_device(*clique, [&] {
                clique->wait_until_quiet();
                return ncclSuccess;
            });
        });
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const std::shared_ptr<Clique> clique = find_clique(comm);
    if (!clique)
        return nccl_error(ncclInvalidArgument, "no communicator has this handle");
    const Presence presence(*clique);
    clique->wait_until_quiet();
    remove_clique(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const std::shared_ptr<Clique> clique = find_clique(comm);
    if (!clique)
        return nccl_error(ncclInvalidArgument, "no communicator has this handle");
    const Presence presence(*clique);
    clique->abort();
    remove_clique(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const std::shared_ptr<Clique> clique = find_clique(comm);
    if (!clique || error == nullptr)
        return nccl_error(ncclInvalidArgument, "no communicator has this handle");
    const Presence presence(*clique);
    *error = clique->state();
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    return with_ready(comm, [&](const std::shared_ptr<Clique>& clique) {
        *count = clique->size();
        return ncclSuccess;
    });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    return with_ready(comm, [&](const std::shared_ptr<Clique>& clique) {
        *device = clique->device();
        return ncclSuccess;
    });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    return with_ready(comm, [&](const std::shared_ptr<Clique>& clique) {
        *rank = clique->rank();
        return ncclSuccess;
    });
}
