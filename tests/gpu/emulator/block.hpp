#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/emulator/fiber.hpp"
#include "tests/gpu/emulator/include/emulated_kernel.h"
#include "tests/gpu/emulator/include/emulated_matrix.h"
#include "tests/gpu/emulator/settings.hpp"

namespace emulated {

/// A kernel and its grid: what each thread runs, and the kernel's name for messages.
struct Launch {
    dim3 grid, block;
    std::function<void()> thread;
    const void* kernel = nullptr;
    std::size_t memory_bytes = 0;  ///< of a block, without its __shared__ variables
};

/// Runs the blocks of kernels, one after another, on the OS thread that owns the runner.
/// The threads of a block are fibers. One fiber runs thread after thread until a thread
/// must wait, so a kernel without barriers needs one switch for each block.
class BlockRunner {
  public:
    BlockRunner();
    ~BlockRunner();
    BlockRunner(const BlockRunner&) = delete;
    BlockRunner& operator=(const BlockRunner&) = delete;

    /// Runs all blocks, in a shuffled order.
    void run(const Launch& launch);

    /// Called from a thread of a kernel.
    void block_barrier(Place place);
    std::uint64_t warp_exchange(WarpCall call, unsigned mask, std::uint64_t value,
                                int source, Place place);
    void do_together(WarpAction action, void* mine, Place place);
    void* memory() { return memory_.data(); }
    /// Ends the process if these bytes are not in the part of the block's memory that the
    /// launch asked for.
    void require_in_memory(const void* address, std::size_t bytes) const;
    void start_copy(void* to, const void* from, bool is_there);
    void end_group_of_copies();
    /// Runs the copies of this thread's groups, except the last group.
    void finish_copies();
    int lane() const { return static_cast<int>(current_ % 32); }

    /// Ends the process because of a mistake in the running kernel.
    [[noreturn]] void die_in_kernel(const std::string& sentence) const;

  private:
    enum class State : std::uint8_t { unstarted, ready, at_barrier, in_warp, finished };

    struct alignas(16) Chunk {
        std::uint64_t bits[2];
    };
    struct LateCopy {
        void* to;
        const void* from;  ///< nullptr: zeros
    };
    struct Thread {
        State state = State::unstarted;
        WarpCall call = WarpCall::sync;
        Fiber* fiber = nullptr;
        unsigned mask = 0;
        int source = 0;
        std::uint64_t value = 0, result = 0;
        Place place;
        WarpAction action = nullptr;
        void* operands = nullptr;  ///< of the action
        std::vector<LateCopy> copies;
        std::size_t group_begins = 0;  ///< where the last ended group begins in `copies`
        std::size_t group_ends = 0;
    };

    static void do_copy(const LateCopy& copy);
    void run_block();
    void run_ready();
    void run_unstarted();
    bool gather_ready();
    void choose_slow_warp();
    void release_barrier();
    bool complete(unsigned mask, WarpCall call) const;
    void exchange(unsigned mask, WarpCall call);
    void act_together(std::size_t first);
    void pause(State state, Place place);
    void become(std::size_t thread);
    template <typename T>
    void shuffle(std::vector<T>& order);
    [[noreturn]] void explain_stop() const;

    const Launch* launch_ = nullptr;
    std::vector<Thread> threads_;
    std::vector<Chunk> memory_;
    std::vector<std::uint32_t> ready_, next_ready_, held_;
    std::size_t slow_warp_ = 0;
    std::size_t position_ = 0;  ///< in ready_
    std::size_t current_ = 0;   ///< the thread that runs
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> free_;
    Fiber* fiber_ = nullptr;  ///< the fiber that runs
    bool ending_ = false;
    Shaker shaker_;
};

/// Returns a kernel's name in the source, if the program still has its symbols.
std::string kernel_name(const void* kernel);

}  // namespace emulated
