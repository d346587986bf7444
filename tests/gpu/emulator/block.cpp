#include "tests/gpu/emulator/block.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace emulated {

namespace {

// A lane that reads from a missing lane gets this, which is NaN in f32 and f64.
constexpr std::uint64_t kNothing = ~std::uint64_t{0};

uint3 position(std::size_t number, dim3 size) {
    const auto n = static_cast<unsigned>(number);
    return {n % size.x, n / size.x % size.y, n / size.x / size.y};
}

}  // namespace

BlockRunner::BlockRunner() : shaker_(settings().seed) {}

BlockRunner::~BlockRunner() {
    ending_ = true;
    for (const std::unique_ptr<Fiber>& fiber : fibers_)
        fiber->resume();
}

void BlockRunner::run(const Launch& launch) {
    launch_ = &launch;
    gridDim = launch.grid;
    blockDim = launch.block;
    std::vector<std::uint32_t> blocks(std::size_t{launch.grid.x} * launch.grid.y *
                                      launch.grid.z);
    std::iota(blocks.begin(), blocks.end(), 0);
    shuffle(blocks);
    for (const std::uint32_t block : blocks) {
        blockIdx = position(block, launch.grid);
        run_block();
    }
}

void BlockRunner::run_block() {
    threads_.assign(std::size_t{blockDim.x} * blockDim.y * blockDim.z, {});
    memory_.assign((launch_->memory_bytes + sizeof(Chunk) - 1) / sizeof(Chunk),
                   {{kNothing, kNothing}});
    next_ready_.resize(threads_.size());
    std::iota(next_ready_.begin(), next_ready_.end(), 0);
    choose_slow_warp();
    while (gather_ready()) {
        shuffle(ready_);
        run_ready();
    }
}

void BlockRunner::run_ready() {
    for (position_ = 0; position_ < ready_.size();) {
        const std::size_t next = ready_[position_];
        if (threads_[next].state == State::unstarted) {
            if (free_.empty()) {
                fibers_.push_back(std::make_unique<Fiber>([this] { run_unstarted(); }));
                free_.push_back(fibers_.back().get());
            }
            fiber_ = free_.back();
            free_.pop_back();
        } else {
            ++position_;
            become(next);
            fiber_ = threads_[next].fiber;
        }
        fiber_->resume();
    }
}

void BlockRunner::run_unstarted() {
    Fiber* const mine = fiber_;
    while (!ending_) {
        while (position_ < ready_.size() &&
               threads_[ready_[position_]].state == State::unstarted) {
            const std::size_t thread = ready_[position_++];
            become(thread);
            launch_->thread();
            threads_[thread].state = State::finished;
            if (kWithTsan) break;
        }
        free_.push_back(mine);
        mine->pause();
    }
}

/// Gathers the threads that can run. The slow warp's threads run only if no other can.
bool BlockRunner::gather_ready() {
    if (next_ready_.empty() && held_.empty()) release_barrier();
    ready_.clear();
    for (const std::uint32_t thread : next_ready_)
        (thread / 32 == slow_warp_ ? held_ : ready_).push_back(thread);
    next_ready_.clear();
    if (ready_.empty()) ready_.swap(held_);
    return !ready_.empty();
}

/// Chooses another slow warp, or none, for the time until the next barrier.
void BlockRunner::choose_slow_warp() {
    slow_warp_ = shaker_.below(static_cast<unsigned>(threads_.size() / 32 + 2));
}

void BlockRunner::release_barrier() {
    const auto finished = [](const Thread& thread) {
        return thread.state == State::finished;
    };
    const auto waits_with_first = [this](const Thread& thread) {
        return thread.state == State::at_barrier && thread.place == threads_[0].place;
    };
    if (std::all_of(threads_.begin(), threads_.end(), finished)) return;
    if (!std::all_of(threads_.begin(), threads_.end(), waits_with_first)) explain_stop();
    for (std::size_t i = 0; i < threads_.size(); ++i) {
        threads_[i].state = State::ready;
        next_ready_.push_back(static_cast<std::uint32_t>(i));
    }
    choose_slow_warp();
}

void BlockRunner::become(std::size_t thread) {
    current_ = thread;
    threadIdx = position(thread, blockDim);
}

void BlockRunner::pause(State state, Place place) {
    Thread& mine = threads_[current_];
    mine.state = state;
    mine.place = place;
    mine.fiber = fiber_;
    fiber_->pause();
}

void BlockRunner::block_barrier(Place place) {
    pause(State::at_barrier, place);
}

std::uint64_t BlockRunner::warp_exchange(WarpCall call, unsigned mask,
                                         std::uint64_t value, int source, Place place) {
    Thread& mine = threads_[current_];
    if ((mask >> lane() & 1) == 0)
        die_in_kernel("a lane at line " + std::to_string(place.line) +
                      " is not in the mask that it passes");
    mine.call = call;
    mine.mask = mask;
    mine.value = value;
    mine.source = source;
    mine.place = place;
    mine.state = State::in_warp;
    if (complete(mask, call))
        exchange(mask, call);
    else
        pause(State::in_warp, place);
    return threads_[current_].result;
}

void BlockRunner::do_together(WarpAction action, void* mine, Place place) {
    Thread& thread = threads_[current_];
    thread.action = action;
    thread.operands = mine;
    warp_exchange(WarpCall::together, 0xffffffff, 0, 0, place);
}

void BlockRunner::require_in_memory(const void* address, std::size_t bytes) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
    if (at < begin || at + bytes > begin + launch_->memory_bytes)
        die_in_kernel("an instruction leaves the block's memory");
}

void BlockRunner::do_copy(const LateCopy& copy) {
    if (copy.from == nullptr)
        std::memset(copy.to, 0, 16);
    else
        std::memcpy(copy.to, copy.from, 16);
}

void BlockRunner::start_copy(void* to, const void* from, bool is_there) {
    for (const void* address : {static_cast<const void*>(to), from})
        if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
            die_in_kernel("a copy's address is not a multiple of 16 bytes");
    require_in_memory(to, 16);
    const LateCopy copy{to, is_there ? from : nullptr};
    if (shaker_.below(2) == 0)
        do_copy(copy);
    else
        threads_[current_].copies.push_back(copy);
}

void BlockRunner::end_group_of_copies() {
    Thread& mine = threads_[current_];
    mine.group_begins = mine.group_ends;
    mine.group_ends = mine.copies.size();
}

void BlockRunner::finish_copies() {
    Thread& mine = threads_[current_];
    for (std::size_t i = 0; i < mine.group_begins; ++i)
        do_copy(mine.copies[i]);
    mine.copies.erase(
        mine.copies.begin(),
        mine.copies.begin() + static_cast<std::ptrdiff_t>(mine.group_begins));
    mine.group_ends -= mine.group_begins;
    mine.group_begins = 0;
}

bool BlockRunner::complete(unsigned mask, WarpCall call) const {
    const std::size_t first = current_ / 32 * 32;
    const std::size_t last = std::min(first + 32, threads_.size());
    for (std::size_t i = first; i < last; ++i) {
        if ((mask >> (i - first) & 1) == 0) continue;
        const Thread& thread = threads_[i];
        if (thread.state != State::in_warp || thread.mask != mask ||
            thread.call != call || thread.action != threads_[current_].action)
            return false;
        // All threads of the warp run this instruction together, so they are at the same
        // place.
        if (call == WarpCall::together && !(thread.place == threads_[current_].place))
            return false;
    }
    if (call == WarpCall::together && last - first < 32)
        die_in_kernel("a warp of fewer than 32 threads uses tensor cores");
    return true;
}

void BlockRunner::act_together(std::size_t first) {
    void* of_lanes[32];
    for (std::size_t i = 0; i < 32; ++i)
        of_lanes[i] = threads_[first + i].operands;
    threads_[current_].action(of_lanes);
    for (std::size_t i = 0; i < 32; ++i)
        threads_[first + i].action = nullptr;
}

void BlockRunner::exchange(unsigned mask, WarpCall call) {
    const std::size_t first = current_ / 32 * 32;
    const std::size_t lanes = std::min<std::size_t>(32, threads_.size() - first);
    const auto takes_part = [&](std::size_t lane) {
        return lane < lanes && (mask >> lane & 1) != 0;
    };
    if (call == WarpCall::together) act_together(first);
    std::uint64_t ballot = 0;
    for (std::size_t i = 0; i < lanes; ++i)
        if (takes_part(i) && threads_[first + i].value != 0)
            ballot |= std::uint64_t{1} << i;
    for (std::size_t i = 0; i < lanes; ++i) {
        if (!takes_part(i)) continue;
        Thread& thread = threads_[first + i];
        const auto source = static_cast<std::size_t>(thread.source);
        if (call == WarpCall::ballot) thread.result = ballot;
        if (call == WarpCall::shuffle)
            thread.result =
                takes_part(source) ? threads_[first + source].value : kNothing;
        thread.state = State::ready;
        if (first + i != current_)
            next_ready_.push_back(static_cast<std::uint32_t>(first + i));
    }
}

template <typename T>
void BlockRunner::shuffle(std::vector<T>& order) {
    for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[shaker_.below(static_cast<unsigned>(i))]);
}

void BlockRunner::die_in_kernel(const std::string& sentence) const {
    die("in " + kernel_name(launch_->kernel) + ", block " + std::to_string(blockIdx.x) +
        " of " + std::to_string(launch_->grid.x) + ": " + sentence);
}

void BlockRunner::explain_stop() const {
    std::vector<std::pair<std::string, int>> groups;
    for (const Thread& thread : threads_) {
        std::string what = "have ended";
        if (thread.state != State::finished)
            what =
                std::string("wait ") +
                (thread.state == State::at_barrier ? "for the block" : "for their warp") +
                " at " + thread.place.file + ":" + std::to_string(thread.place.line);
        const auto found = std::find_if(groups.begin(), groups.end(),
                                        [&](const auto& g) { return g.first == what; });
        if (found == groups.end())
            groups.emplace_back(what, 1);
        else
            ++found->second;
    }
    std::string sentence = "the threads can never continue:";
    for (const auto& [what, count] : groups)
        sentence +=
            (&what == &groups[0].first ? " " : ", ") + std::to_string(count) + " " + what;
    die_in_kernel(sentence);
}

}  // namespace emulated
