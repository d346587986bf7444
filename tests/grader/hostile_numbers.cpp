#include "tests/grader/hostile_numbers.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/resource.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "lessons/grader/examiner.hpp"
#include "src/core/require.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/emulator/sanitizers.hpp"

namespace lockstep::test {

using namespace lessons;

TensorOnWire ToldTensors::named(const Tensor& tensor) {
    TensorOnWire on_wire;
    if (tensor)
        on_wire = {std::bit_cast<std::int64_t>(tensor.storage()->data),
                   static_cast<std::uint64_t>(tensor.offset_bytes()), tensor.shape(),
                   tensor.dtype(), ""};
    const auto other = instead.find(static_cast<int>(told.size()));
    told.push_back(on_wire);
    return other == instead.end() ? on_wire : other->second;
}

std::string bytes_of(const Message& message, ToldTensors& tensors) {
    tensors.told.clear();
    WireWriter out(tensors);
    message(out);
    return std::move(out.bytes());
}

std::string bytes_of(const Message& message) {
    ToldTensors tensors;
    return bytes_of(message, tensors);
}

Script script_of(const std::vector<Message>& messages) {
    Script script;
    for (const Message& message : messages)
        script.push_back(bytes_of(message));
    script.push_back(bytes_of(nothing_left()));
    return script;
}

RankTask hostile_task() {
    const auto given = [](DType dtype, std::int64_t elements) {
        HostTensor values({elements}, dtype);
        if (dtype != DType::bf16)
            for (std::int64_t i = 0; i < elements; ++i)
                values.set(i, static_cast<double>(i % 5));
        return TaskTensor{values};
    };
    // The inputs are in the order of their handles.
    return {"hostile numbers",
            {{"1", given(DType::f64, kGiven)},
             {"2", given(DType::f64, kGiven)},
             {"3", given(DType::f32, kGiven)},
             {"4", given(DType::i32, kGiven)},
             {"5", given(DType::bf16, kGiven)},
             {"6", given(DType::f64, 0)}},
            {},
            true};
}

namespace {

/// A rank's process. Its messages are known from the beginning.
class Written final : public RankProcess {
  public:
    explicit Written(const Script& messages) {
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()) != 0)
            throw std::system_error(errno, std::generic_category(), "socketpair");
        frames_ = Frames(ends_[0]);
        std::size_t bytes = 0;
        for (const std::string& message : messages)
            bytes += sizeof(std::uint64_t) + message.size();
        // Messages that fit into the line's buffer are written at once.
        constexpr std::size_t kHeld = 50'000;
        if (bytes <= kHeld)
            write(messages);
        else
            writer_ = std::thread([this, &messages] { write(messages); });
        if (writer_.joinable()) reader_ = std::thread([this] { drain(); });
    }
    ~Written() override {
        ::shutdown(ends_[0], SHUT_RDWR);
        if (writer_.joinable()) writer_.join();
        if (reader_.joinable()) reader_.join();
        for (const int end : ends_)
            ::close(end);
    }
    Written(const Written&) = delete;
    Written& operator=(const Written&) = delete;

    Frames& frames() override { return frames_; }
    std::optional<double> busy_seconds() override { return 0; }
    End ending() override { return {"the program ended", false}; }
    void kill() override {}

  private:
    void write(const Script& messages) {
        Frames far(ends_[1]);
        for (const std::string& message : messages)
            if (!far.send(message)) break;  // the other end is closed
        ::shutdown(ends_[1], SHUT_WR);
    }
    /// Reads the answers, so that the line has room for more.
    void drain() {
        std::array<char, 1 << 14> answers;
        while (::recv(ends_[1], answers.data(), answers.size(), 0) > 0) {
        }
    }

    std::array<int, 2> ends_{-1, -1};
    Frames frames_{-1};
    std::thread writer_, reader_;
};

}  // namespace

Ended run_of(const std::vector<Script>& scripts, const RunLimits& limits) {
    const double begun = processor_seconds();
    sim::ClusterOptions options;
    options.ranks = static_cast<int>(scripts.size());
    options.spec = examination_cluster();
    options.workers = 1;
    options.check = sim::CheckLevel::full;
    options.trace = true;
#ifdef EMULATED_WITH_ASAN  // the sanitizer cannot follow fibers' stacks
    options.executor = sim::ExecutorKind::threads;
#endif
    static const RankTask task = hostile_task();
    try {
        sim::make_cluster(options)->run([&](Rank& rank) {
            Written process(scripts[static_cast<std::size_t>(rank.index())]);
            double idle = 0;
            RankSession session(rank, process, limits, begun, idle);
            session.run(task);
        });
    } catch (const TaskEnded& ended) {
        return ended.what();
    } catch (const FaultError& fault) {
        return fault.diagnosis().text();
    } catch (const UsageError& error) {
        return error.what();
    }
    return std::nullopt;
}

DType dtype_of(std::int64_t handle) {
    switch (handle) {
        case kSingle:
            return DType::f32;
        case kWhole:
            return DType::i32;
        case kHalf:
            return DType::bf16;
        default:
            return DType::f64;
    }
}

void Runs::make(const std::vector<Script>& scripts, const std::string& what) {
    INFO(what);
    const Ended ended = run_of(scripts);
    ++runs_;
    if (ended) ++ended_;
    if (ended && ended->empty()) FAIL("it ended without a word");
}

void Runs::check() const {
    constexpr std::int64_t kMostMemory = std::int64_t{1} << 30;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    CHECK(ended_ > runs_ / 2);
    CHECK(usage.ru_maxrss * 1024 < kMostMemory);
}

}  // namespace lockstep::test
