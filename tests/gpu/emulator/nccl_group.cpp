#include <algorithm>
#include <future>
#include <thread>

#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/nccl_calls.hpp"
#include "tests/gpu/emulator/reduction.hpp"
#include "tests/gpu/emulator/settings.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

/// One communicator's calls in a group.
struct Entry {
    std::shared_ptr<Clique> clique;
    cudaStream_t stream;
    std::vector<Call> calls;
};

struct Job {
    std::shared_ptr<Clique> clique;
    std::function<ncclResult_t()> work;
};

/// The group of this thread.
struct Group {
    int depth = 0;
    ncclResult_t failure = ncclSuccess;
    std::vector<Entry> entries;
    std::vector<Job> jobs;
};

Group& group() {
    thread_local Group group;
    return group;
}

void launch(const Entry& entry) {
    if (entry.clique->aborted()) return;
    auto batch =
        std::make_shared<Batch>(entry.calls, entry.clique->rank(), entry.clique->size());
    const std::uint64_t ticket = entry.clique->next_ticket();
    const std::shared_ptr<Stream> stream = find_stream(entry.stream);
    if (!stream) die("a stream was destroyed before NCCL had put its operation in");
    put_launch(stream, [] {});  // its kernel may have the fault
    put(stream, [clique = entry.clique, ticket, batch] { clique->run(ticket, *batch); });
}

ncclResult_t connect(const Entry& entry) {
    return on_device(*entry.clique, [&] {
        entry.clique->connect_for(entry.calls);
        return ncclSuccess;
    });
}

/// Connects in parallel, since other ranks may connect their communicators in another
/// order.
ncclResult_t connect(const std::vector<Entry>& entries) {
    std::vector<std::future<ncclResult_t>> results;
    results.reserve(entries.size());
    for (const Entry& entry : entries)
        results.push_back(
            std::async(std::launch::async, [&entry] { return connect(entry); }));
    ncclResult_t worst = ncclSuccess;
    for (std::future<ncclResult_t>& result : results)
        worst = std::max(worst, result.get());
    return worst;
}

ncclResult_t connect_and_launch(const std::vector<Entry>& entries) {
    if (const ncclResult_t failed = connect(entries)) return failed;
    for (const Entry& entry : entries)
        launch(entry);
    return ncclSuccess;
}

void launch_later(std::vector<Entry> entries) {
    for (const Entry& entry : entries)
        entry.clique->begin_job();
    std::thread([entries = std::move(entries)] {
        static std::atomic<std::uint64_t> launches = 0;
        Shaker shaker(settings().seed + ++launches);
        delay_now_and_then(shaker, 4);
        const ncclResult_t result = connect_and_launch(entries);
        for (const Entry& entry : entries)
            entry.clique->end_job(result);
    }).detach();
}

/// Runs blocking work in parallel. Otherwise the ranks of a group would wait for each
/// other.
ncclResult_t run_together(const std::vector<Job>& jobs) {
    std::vector<std::thread> threads;
    std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
    for (std::size_t i = 0; i < jobs.size(); ++i)
        threads.emplace_back([&, i] {
            results[i] = jobs[i].work();
            jobs[i].clique->end_job(results[i]);
        });
    for (std::thread& thread : threads)
        thread.join();
    for (const ncclResult_t result : results)
        if (result != ncclSuccess) return result;
    return ncclSuccess;
}

ncclResult_t check_entries(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
        if (entry.clique->blocking() != entries[0].clique->blocking())
            return nccl_error(ncclInvalidArgument,
                              "a group has communicators that block and others that do "
                              "not");
        const Batch batch(entry.calls, entry.clique->rank(), entry.clique->size());
        if (!batch.self_messages_match())
            return nccl_error(ncclInvalidUsage,
                              "a rank's messages to itself do not match");
    }
    return ncclSuccess;
}

ncclResult_t end_group(Group ended) {
    if (ended.failure != ncclSuccess) return ended.failure;
    if (const ncclResult_t wrong = check_entries(ended.entries)) return wrong;
    if (const ncclResult_t failed = run_together(ended.jobs)) return failed;
    if (ended.entries.empty()) return ncclSuccess;
    if (!ended.entries[0].clique->blocking()) {
        launch_later(std::move(ended.entries));
        return ncclInProgress;
    }
    return connect_and_launch(ended.entries);
}

ncclResult_t check_call(const Clique& clique, cudaStream_t stream, const Call& call) {
    const std::shared_ptr<Stream> found = find_stream(stream);
    if (!found || found->device() != clique.device())
        return nccl_error(ncclInvalidArgument,
                          "the stream is not one of the communicator's device");
    if (bytes_of(call.type) == 0)
        return nccl_error(ncclInvalidArgument, "no data type has this number");
    if (call.reduces() && !can_reduce(call.type))
        return nccl_error(ncclInvalidArgument,
                          "the emulation cannot add up this data type");
    if (call.reduces() && (call.reduction < ncclSum || call.reduction > ncclAvg))
        return nccl_error(ncclInvalidArgument, "no reduction has this number");
    if (call.peer < 0 || call.peer >= clique.size())
        return nccl_error(ncclInvalidArgument, "rank " + std::to_string(call.peer) +
                                                   " is not one of " +
                                                   std::to_string(clique.size()));
    check_buffers(call, clique.rank(), clique.size());
    return ncclSuccess;
}

ncclResult_t note(const std::shared_ptr<Clique>& clique, cudaStream_t stream,
                  const Call& call) {
    if (const ncclResult_t wrong = check_call(*clique, stream, call)) return wrong;
    for (Entry& entry : group().entries) {
        if (entry.clique != clique) continue;
        if (entry.stream != stream)
            return nccl_error(ncclInvalidUsage,
                              "the emulation takes one stream of a communicator in a "
                              "group");
        entry.calls.push_back(call);
        return ncclSuccess;
    }
    group().entries.push_back({clique, stream, {call}});
    return ncclSuccess;
}

}  // namespace

ncclResult_t submit(const std::shared_ptr<Clique>& clique, cudaStream_t stream,
                    const Call& call) {
    const bool alone = group().depth == 0;
    if (alone) ++group().depth;
    const ncclResult_t noted = note(clique, stream, call);
    if (noted != ncclSuccess) group().failure = noted;
    return alone ? ncclGroupEnd() : noted;
}

ncclResult_t start_job(const std::shared_ptr<Clique>& clique,
                       std::function<ncclResult_t()> job) {
    clique->begin_job();
    if (!clique->blocking()) {
        std::thread([clique, job = std::move(job)] { clique->end_job(job()); }).detach();
        return ncclInProgress;
    }
    if (group().depth > 0) {
        group().jobs.push_back({clique, std::move(job)});
        return ncclSuccess;
    }
    const ncclResult_t result = job();
    clique->end_job(result);
    return result;
}

}  // namespace emulated

using namespace emulated;

ncclResult_t ncclGroupStart() {
    ++group().depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group().depth == 0)
        return nccl_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group().depth > 0) return ncclSuccess;
    return end_group(std::exchange(group(), {}));
}
