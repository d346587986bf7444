#include "lessons/grader/remote/rank_session.hpp"

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "lessons/grader/confine/activity.hpp"
#include "src/comm/expect.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

/// Returns how long this process had work, but no processor.
double own_queue_seconds() {
    const std::optional<Activity> own = activity_of(::getpid());
    return own ? own->queue_seconds : 0;
}

}  // namespace

RankSession::RankSession(Rank& rank, RankProcess& process, const RunLimits& limits,
                         double begun, double& all_idle)
    : rank_(rank),
      process_(process),
      limits_(limits),
      begun_(begun),
      all_idle_(all_idle),
      own_queue_(own_queue_seconds()) {}

RankSession::~RankSession() {
    for (; open_phases_ > 0; --open_phases_)
        rank_.device().monitor().phase_ended();
}

RankResult RankSession::run(const RankTask& task) {
    try {
        may_download_ = task.may_download;
        start(task);
        for (; requests_ < kMostRequests; ++requests_) {
            const std::string message = receive();
            WireReader in(*this, message);
            if (!serve(in)) return std::move(result_);
        }
    } catch (const WireError& error) {
        throw TaskEnded(
            TaskEnded::Cause::line, rank_.index(),
            fmt::format("the process of rank {} sent the grader an invalid message: {}",
                        rank_.index(), error.what()));
    }
    throw TaskEnded(TaskEnded::Cause::late, rank_.index(),
                    fmt::format("rank {} had not ended after {} operations",
                                rank_.index(), static_cast<int>(kMostRequests)));
}

void RankSession::start(const RankTask& task) {
    const TaskStart start{task.task, rank_.index(), rank_.size(),
                          upload_given(rank_.device(), task), task.numbers};
    WireWriter out(*this);
    out(rank_.index(), start);
    answer(out);
}

std::string RankSession::receive() {
    Frames& line = process_.frames();
    std::optional<std::string> message;
    while (!(message = line.receive(next_glance())))
        be_patient();
    count_wait();
    // A process that sends requests without end never makes the grader wait.
    if (processor_seconds() - begun_ > limits_.grader_seconds)
        stop(
            fmt::format("its calls have kept the grader busy for more than {:g} s: is "
                        "there a loop that never ends?",
                        limits_.grader_seconds));
    return std::move(*message);
}

Frames::Clock::time_point RankSession::next_glance() {
    wait_began_ = Frames::Clock::now();
    return wait_began_ + kGlance;
}

void RankSession::be_patient() {
    if (process_.frames().end() != Frames::End::late) end_of_line();
    count_wait();
}

void RankSession::count_wait() {
    waited_ += std::chrono::duration<double>(Frames::Clock::now() - wait_began_).count();
    if (waited_ - examined_ < std::chrono::duration<double>(kGlance).count()) return;
    examined_ = waited_;
    const std::optional<double> busy = process_.busy_seconds();
    if (!busy) return;
    // In the rest of the wait the process did nothing, and this process had a processor
    // to see that.
    const double idle = waited_ - *busy - (own_queue_seconds() - own_queue_);
    all_idle_ += std::max(idle - idle_seconds_, 0.0);
    idle_seconds_ = std::max(idle, idle_seconds_);
    const bool too_long = idle_seconds_ > limits_.idle_seconds;
    if (too_long || all_idle_ > limits_.all_idle_seconds)
        stop(
            fmt::format("it did nothing for {:g} s{}: does it sleep, or wait for what "
                        "never comes?",
                        too_long ? limits_.idle_seconds : limits_.all_idle_seconds,
                        too_long ? "" : " in all runs"));
}

void RankSession::stop(const std::string& why) {
    process_.kill();
    throw TaskEnded(TaskEnded::Cause::late, rank_.index(),
                    fmt::format("rank {}: {}", rank_.index(), why));
}

void RankSession::answer(WireWriter& out) {
    Frames& line = process_.frames();
    bool is_sent = line.send(out.bytes(), next_glance());
    for (; !is_sent; is_sent = line.go_on_sending(next_glance()))
        be_patient();
}

void RankSession::end_of_line() {
    const Frames::End line = process_.frames().end();
    if (line == Frames::End::too_long) throw WireError("a message is too long");
    const RankProcess::End end = process_.ending();
    const bool late = end.out_of_time;
    throw TaskEnded(late ? TaskEnded::Cause::late : TaskEnded::Cause::process,
                    rank_.index(),
                    fmt::format("rank {}: {}", rank_.index(), end.sentence));
}

bool RankSession::serve(WireReader& in) {
    const auto request = in.get<RankRequest>();
    switch (request) {
        case RankRequest::returned:
            finish(in);
            return false;
        case RankRequest::threw:
            rethrow(in);
        default:
            break;
    }
    if (serve_told(request, in)) return true;
    require_room();
    WireWriter out(*this);
    serve_asked(request, in, out);
    answer(out);
    return true;
}

void RankSession::require_room() const {
    if (tensors_.size() > kMostHeld || works_.size() > kMostHeld ||
        communicators_.size() > kMostHeld)
        throw WireError("too many tensors, works or communicators exist");
}

bool RankSession::serve_told(RankRequest request, WireReader& in) {
    DeviceMonitor& monitor = rank_.device().monitor();
    switch (request) {
        case RankRequest::freed: {
            const auto tensor = tensors_.find(in.get<std::int64_t>());
            in.end();
            if (tensor == tensors_.end()) throw WireError("a tensor is freed twice");
            handles_.erase(tensor->second.storage());
            tensors_.erase(tensor);
            return true;
        }
        case RankRequest::phase_began: {
            if (open_phases_ >= kMostOpenPhases)
                throw WireError("too many phases are open");
            const auto phase = in.get<Phase>();
            const int micro_batch = in.get<int>();
            const auto at = in.get<SourceLine>();
            in.end();
            monitor.phase_began(phase, micro_batch, at);
            ++open_phases_;
            return true;
        }
        case RankRequest::phase_ended:
            in.end();
            if (open_phases_ == 0) throw WireError("a phase ends that never began");
            --open_phases_;
            monitor.phase_ended();
            return true;
        case RankRequest::work_released: {
            const auto work = in.get<std::int64_t>();
            in.end();
            if (works_.erase(work) == 0) throw WireError("work is released twice");
            return true;
        }
        case RankRequest::communicator_gone: {
            const int group = in.get<int>();
            in.end();
            if (communicators_.erase(group) == 0)
                throw WireError("a communicator goes twice");
            return true;
        }
        default:
            return false;
    }
}

void RankSession::serve_asked(RankRequest request, WireReader& in, WireWriter& out) {
    switch (request) {
        case RankRequest::empty:
            return empty(in, out);
        case RankRequest::upload_into:
            return upload_into(in);
        case RankRequest::download:
        case RankRequest::peek:
            return read(request, in, out);
        case RankRequest::operation:
            return perform(in, out);
        case RankRequest::launch:
            return launch(in, out);
        case RankRequest::all_to_all_v:
            return all_to_all_v(in, out);
        case RankRequest::split:
            return split(in, out);
        case RankRequest::wait: {
            const auto work = works_.find(in.get<std::int64_t>());
            if (work == works_.end())
                throw WireError("a wait for work that does not exist");
            const auto at = in.get<SourceLine>();
            in.end();
            return work->second.wait(at);
        }
        case RankRequest::wait_any:
            return wait_any(in, out);
        case RankRequest::bytes_sent: {
            const Communicator& group = communicator(in);
            const auto at = in.get<SourceLine>();
            in.end();
            const BytesByVerb bytes = group.bytes_sent(at);
            return out(std::vector<std::int64_t>(bytes.begin(), bytes.end()));
        }
        case RankRequest::declare_values:
            return declare_values(in);
        default:
            return say_of_replicas(request, in);
    }
}

/// The work that has finished stays in works_ until the process releases it.
void RankSession::wait_any(WireReader& in, WireWriter& out) {
    const auto numbers = in.get<std::vector<std::int64_t>>();
    const auto at = in.get<SourceLine>();
    in.end();
    std::vector<Work> works;
    for (const std::int64_t number : numbers) {
        const auto work = works_.find(number);
        if (work == works_.end()) throw WireError("a wait for work that does not exist");
        works.push_back(work->second);
    }
    const std::size_t place = lockstep::wait_any(works, at);
    works_.at(numbers[place]) = std::move(works[place]);
    out(static_cast<std::int64_t>(place));
}

/// Attention needs this check: no memory limit bounds its time, and it cannot be
/// interrupted.
void RankSession::require_short(const AttentionHeads& heads, bool computed,
                                SourceLine at) {
    const Heads& queries = heads.queries;
    const Heads& keys = heads.keys;
    constexpr double kBesideWidth = 16;
    const double pairs =
        static_cast<double>(queries.rows()) * static_cast<double>(keys.rows()) *
        static_cast<double>(queries.batches()) * static_cast<double>(queries.heads);
    require(pairs * (kBesideWidth + static_cast<double>(queries.width)) <=
                (computed ? kMostAttention : kMostAttentionOfShapes),
            at,
            "attention with {} queries, {} keys, {} batches and {} heads of width {} "
            "takes longer than a graded program may run",
            queries.rows(), keys.rows(), queries.batches(), queries.heads, queries.width);
}

void RankSession::empty(WireReader& in, WireWriter& out) {
    rank_.device().set_category(in.get<MemoryCategory>());
    const auto shape = in.get<Shape>();
    const auto dtype = in.get<DType>();
    const auto at = in.get<SourceLine>();
    in.end();
    out(rank_.device().empty(shape, dtype, at));
}

void RankSession::upload_into(WireReader& in) {
    const auto destination = in.get<Tensor>();
    const auto values = in.get<HostTensor>();
    const auto at = in.get<SourceLine>();
    in.end();
    rank_.device().upload_into(destination, values, at);
}

/// Sends values to the rank's host.
void RankSession::read(RankRequest request, WireReader& in, WireWriter& out) {
    const auto source = in.get<Tensor>();
    const auto at = in.get<SourceLine>();
    in.end();
    require(may_download_, at,
            "in a graded program, values on the device cannot be read on the host");
    Device& device = rank_.device();
    out(request == RankRequest::download ? device.download(source, at)
                                         : device.peek(source, at));
}

void RankSession::perform(WireReader& in, WireWriter& out) {
    rank_.device().set_category(in.get<MemoryCategory>());
    with_operation(in.get<OperationKind>(), [&](auto op) {
        using Op = decltype(op);
        in(op);
        const auto at = in.get<SourceLine>();
        in.end();
        if constexpr (std::is_same_v<Op, ops::Attend> ||
                      std::is_same_v<Op, ops::AttendBackward>)
            require_short(op.heads, rank_.device().has_numbers(), at);
        rank_.device().perform(OperationRef(op), at);
        if constexpr (kMakesResults<Op>)
            op.make([&out](const Tensor& result, const Shape&, DType) { out(result); });
    });
}

Communicator& RankSession::communicator(WireReader& in) {
    const int number = in.get<int>();
    if (number == kWorldNumber) return rank_.world();
    const auto found = communicators_.find(number);
    if (found == communicators_.end())
        throw WireError("a communicator that does not exist");
    return *found->second;
}

void RankSession::keep(Work work, WireWriter& out) {
    works_.emplace(++last_work_, std::move(work));
    out(last_work_);
}

void RankSession::require_name(const std::string& name) {
    if (name.size() > kLongestName) throw WireError("a name is too long");
}

void RankSession::launch(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto operations = in.get<std::vector<CommOperation>>();
    const auto at = in.get<SourceLine>();
    in.end();
    if (operations.size() > kMostInGroup)
        throw WireError("a group has too many operations");
    if (!operations.empty())
        requests_ += static_cast<std::int64_t>(operations.size()) - 1;
    if (operations.size() == 1) return keep(group.start(operations.front()), out);
    Group together = group.group(at);
    for (const CommOperation& operation : operations)
        together.add(operation);
    keep(together.start(at), out);
}

void RankSession::all_to_all_v(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto output = in.get<Tensor>();
    const auto recv_counts = in.get<std::vector<std::int64_t>>();
    const auto input = in.get<Tensor>();
    const auto send_counts = in.get<std::vector<std::int64_t>>();
    const auto at = in.get<SourceLine>();
    in.end();
    keep(group.all_to_all_v(output, recv_counts, input, send_counts, at), out);
}

void RankSession::split(WireReader& in, WireWriter& out) {
    Communicator& group = communicator(in);
    const auto request = in.get<SplitRequest>();
    const auto at = in.get<SourceLine>();
    in.end();
    require_name(request.name);
    for (const std::string& axis : request.mesh)
        require_name(axis);
    if (request.mesh.size() > kMostAxes)
        throw WireError("a split has more axes than meshes have");
    if (request.members.size() > static_cast<std::size_t>(group.size()))
        throw WireError("a split has more members than there are ranks");
    std::unique_ptr<Communicator> made = group.split(request, at);
    if (!made) return out(std::vector<int>{-1, 0, 0});
    out(std::vector<int>{++last_communicator_, made->rank(), made->size()});
    communicators_.emplace(last_communicator_, std::move(made));
}

void RankSession::say_of_replicas(RankRequest request, WireReader& in) {
    Communicator& group = communicator(in);
    const auto tensor = in.get<Tensor>();
    const auto name = in.get<std::string>();
    const auto at = in.get<SourceLine>();
    in.end();
    if (!tensor) throw WireError("replicas of no tensor");
    require_name(name);
    switch (request) {
        case RankRequest::expect_replicated:
            return lockstep::expect_replicated(group, tensor, name, at);
        case RankRequest::declare_replicas:
            return lockstep::declare_replicas(group, tensor, name, at);
        default:
            return lockstep::declare_same(group, tensor, name, at);
    }
}

void RankSession::declare_values(WireReader& in) {
    Communicator& group = communicator(in);
    const auto values = in.get<HostTensor>();
    const auto name = in.get<std::string>();
    const auto at = in.get<SourceLine>();
    in.end();
    require_name(name);
    lockstep::declare_same(group, values, name, at);
}

void RankSession::finish(WireReader& in) {
    const auto tensors = in.get<std::map<std::string, Tensor>>();
    in(result_.values, result_.texts);
    in.end();
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : tensors)
        bytes += tensor.bytes();
    if (tensors.size() + result_.values.size() + result_.texts.size() > kMostLeft ||
        bytes > kMostBytesLeft)
        throw WireError("the task's results are too many or too large");
    result_.tensors = read_left(rank_.device(), tensors);
    works_.clear();
    communicators_.clear();
    tensors_.clear();
}

void RankSession::rethrow(WireReader& in) const {
    const auto kind = in.get<ThrownKind>();
    // c_str() cuts the text at a 0 byte: a sentence ends there.
    const std::string text = in.get<std::string>().c_str();
    in.end();
    const int rank = rank_.index();
    if (kind == ThrownKind::not_written && !text.empty())
        throw TaskEnded(TaskEnded::Cause::not_written, rank, text);
    if ((kind == ThrownKind::usage || kind == ThrownKind::fault) && !text.empty())
        throw TaskEnded(TaskEnded::Cause::threw, rank, text);
    if (kind == ThrownKind::memory)
        throw TaskEnded(TaskEnded::Cause::threw, rank,
                        fmt::format("rank {} asked for more memory on the host than it "
                                    "may have (std::bad_alloc)",
                                    rank));
    throw TaskEnded(TaskEnded::Cause::threw, rank,
                    fmt::format("rank {} threw an exception{}{}", rank,
                                text.empty() ? "" : ": ", text));
}

TensorOnWire RankSession::named(const Tensor& tensor) {
    if (!tensor) return {};
    const auto [place, is_new] = handles_.try_emplace(tensor.storage(), last_handle_ + 1);
    if (is_new) tensors_.emplace(++last_handle_, tensor);
    return {place->second,
            static_cast<std::uint64_t>(tensor.offset_bytes()),
            tensor.shape(),
            tensor.dtype(),
            "",
            ""};
}

Tensor RankSession::found(const TensorOnWire& tensor) {
    if (tensor.handle == 0) return {};
    const auto known = tensors_.find(tensor.handle);
    if (known == tensors_.end()) throw WireError("a tensor that does not exist");
    const Tensor& whole = known->second;
    const auto width = static_cast<std::uint64_t>(bytes_of(whole.dtype()));
    const std::int64_t elements = tensor.shape.elements();
    const std::int64_t most = whole.elements() - elements;
    if (tensor.dtype != whole.dtype() || tensor.offset % width != 0 || most < 0 ||
        tensor.offset / width > static_cast<std::uint64_t>(most))
        throw WireError("a tensor that reaches beyond its memory");
    const auto first = static_cast<std::int64_t>(tensor.offset / width);
    Tensor view = whole.flat().slice(first, elements).reshaped(tensor.shape);
    constexpr std::size_t kLongest = 200;
    if (!tensor.label.empty() && tensor.label.size() < kLongest)
        view.set_label(tensor.label, tensor.part.substr(0, kLongest));
    return view;
}

SourceLine RankSession::source_line(const std::string& file, int line) {
    constexpr std::size_t kMostFiles = 100;
    constexpr std::size_t kLongestFileName = 200;
    if (file.size() > kLongestFileName)
        throw WireError("a message has too long a file name");
    if (files_.size() >= kMostFiles && !files_.contains(file))
        throw WireError("calls come from more files than a program has");
    files_.insert(file);
    return SourceLine::of(file, line);
}

}  // namespace lockstep::lessons
