#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/batch.hpp"

namespace emulated {

/// This rank's side of a communicator. The operations run on streams' threads, one after
/// another, in the order of their tickets.
class Clique {
  public:
    Clique(std::string name, int rank, int size, int device, bool blocking);

    const std::string& name() const { return name_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    int device() const { return device_; }
    bool blocking() const { return blocking_; }

    /// Meets the other ranks; throws NcclTrouble.
    void connect();
    /// Makes the connections that these calls still need. Collectives connect
    /// all ranks, unless connect() did. Messages connect one direction between two ranks,
    /// and wait for the other rank. Throws NcclTrouble.
    void connect_for(const std::vector<Call>& calls);
    /// Numbers the splits, so that all ranks have the same name for each split.
    int next_split() { return splits_++; }

    ncclResult_t state() const { return state_; }
    void set_state(ncclResult_t state) { state_ = state; }
    /// Work in another thread: the communicator is in progress until the work ends. Then
    /// the state is the work's result, unless something else has failed meanwhile.
    void begin_job();
    void end_job(ncclResult_t result);

    std::uint64_t next_ticket();
    void run(std::uint64_t ticket, Batch& batch);
    /// Returns whether some operations have not ended yet.
    bool busy() const;
    void wait_until_quiet() const;

    bool aborted() const { return aborted_; }
    /// Ends running and waiting operations. Returns when no operation is left.
    void abort();

    /// Set while a thread is in a call; a second thread is the program's mistake.
    std::atomic<bool> inside = false;
    /// Set by ncclCommFinalize.
    std::atomic<bool> finalized = false;

  private:
    void connect_collectives();
    Stop stop() const {
        return [this] { return aborted(); };
    }

    const std::string name_;
    const int rank_, size_, device_;
    const bool blocking_;
    int splits_ = 0;
    bool has_collectives_ = false;
    std::set<std::pair<int, int>> has_messages_;  ///< from a rank to a rank
    std::vector<Descriptor> sockets_;
    std::atomic<ncclResult_t> state_ = ncclInProgress;
    std::atomic<bool> aborted_ = false;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::uint64_t tickets_ = 0;
    std::uint64_t turn_ = 0;  ///< the ticket whose operation may run
    int running_ = 0;         ///< operations and jobs
};

}  // namespace emulated
