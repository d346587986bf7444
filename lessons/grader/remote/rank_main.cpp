// The main program of a student's code for grading: one process per rank. Its line to the
// grader is descriptor 3.

#include <cstdlib>
#include <exception>
#include <new>

#include "lessons/grader/remote/remote_comm.hpp"
#include "src/core/require.hpp"
#include "src/course/not_written.hpp"
#include "src/course/task.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kLineDescriptor = 3;

TaskOutputs run(RemoteDevice& device, const TaskStart& start) {
    RankReport report;
    RemoteComm world(device, kWorldNumber, "world", start.rank, start.size);
    Rank rank(device, world, report);
    const Tasks known = tasks();
    const auto task = known.find(start.task);
    require(task != known.end(), "there is no task '{}'", start.task);
    TaskOutputs out;
    task->second(rank, {start.tensors, start.numbers}, out);
    world.require_groups_started();
    return out;
}

/// Call this in a catch block.
void tell_exception(RankLine& line) {
    const auto tell = [&line](ThrownKind kind, const std::string& text) {
        line.tell(RankRequest::threw, kind, text);
    };
    try {
        throw;
    } catch (const NotWritten& thrown) {
        tell(ThrownKind::not_written, thrown.what());
    } catch (const UsageError& thrown) {
        tell(ThrownKind::usage, thrown.what());
    } catch (const FaultError& thrown) {
        tell(ThrownKind::fault, thrown.diagnosis().text());
    } catch (const std::bad_alloc&) {
        tell(ThrownKind::memory, "");
    } catch (const std::exception& thrown) {
        tell(ThrownKind::other, thrown.what());
    } catch (...) {
        tell(ThrownKind::other, "");
    }
}

void serve() {
    RankLine line(kLineDescriptor);
    const std::string first = line.receive();
    // The message begins with the device's number: its tensors can be read only after
    // the device is made.
    WireReader head(line, first);
    RemoteDevice device(head.get<int>(), line);
    TaskStart start = head.get<TaskStart>();
    try {
        const TaskOutputs out = run(device, start);
        line.tell(RankRequest::returned, out.tensors, out.values, out.texts);
    } catch (...) {
        tell_exception(line);
    }
    // Everything that is still alive is freed with the process.
    std::_Exit(EXIT_SUCCESS);
}

}  // namespace

}  // namespace lockstep::lessons

int main() {
    lockstep::lessons::serve();
    return EXIT_SUCCESS;
}
