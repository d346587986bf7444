// Fuzzes the readers of data from outside: files, words that people type, and what other
// processes send. CONTRIBUTING.md says how to run this program.

#include <cstring>
#include <iostream>
#include <map>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>

#include "gpu/launcher/connection.hpp"
#include "lessons/assignments/decode/grading/replay.hpp"
#include "lessons/grader/build_program.hpp"
#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_table.hpp"
#include "lessons/page/prediction.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/input_files.hpp"
#include "lessons/runner/notebook.hpp"
#include "lessons/tools/cluster_file.hpp"
#include "lessons/tools/measurements.hpp"
#include "lessons/tools/schedule_page.hpp"
#include "lessons/tools/service_file.hpp"
#include "src/chart/svg.hpp"
#include "src/course/found_mistake.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/checkpoint_index.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/report/compare.hpp"
#include "tests/grader/hostile_numbers.hpp"
#include "tests/report/support.hpp"

extern "C" const char* lockstep_call(const char* request);  // lessons/book/browser.cpp

namespace lockstep::test {

namespace {

namespace fs = std::filesystem;
using Text = std::string;
using Texts = std::vector<std::string>;

/// A reader, and valid inputs, with which the fuzzer begins. The reader may refuse an
/// input with a UsageError. Any other exception is a mistake.
struct Reader {
    void (*read)(const Text& input);
    Texts seeds;
};
using Readers = std::map<Text, Reader>;

template <typename Refusal = UsageError, typename Action>
void attempt(Action&& action) {
    try {
        action();
    } catch (const Refusal&) {
    }
}

Texts lines_of(const Text& text) {
    std::istringstream stream(text);
    Texts lines;
    for (Text line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

/// Splits an input at its first byte 0x1e: these are two files.
std::pair<Text, Text> two_files(const Text& input) {
    const std::size_t end = std::min(input.find('\x1e'), input.size());
    return {input.substr(0, end), input.substr(std::min(end + 1, input.size()))};
}

/// Returns the path of a file with this content.
fs::path file_of(const Text& bytes, const fs::path& name = "file.json") {
    static const TemporaryFolder folder;
    const fs::path path = folder / name.string();
    fs::create_directories(path.parent_path());
    write_file(path, bytes);
    return path;
}

// Files of runs.

/// Shows a small schedule in all forms. A large one would take too long.
void show(const LoadedSchedule& loaded) {
    constexpr std::size_t kMost = 500;
    std::size_t instructions = 0;
    for (const auto& list : loaded.schedule.work)
        instructions += list.size();
    if (instructions > kMost) return;
    attempt([&] { schedule_csv(loaded.schedule); });
    attempt([&] { pytorch_csv(loaded.schedule); });
    lessons::ScheduleSettings settings;
    settings.name = "schedule.json";
    const lessons::ExaminedSchedule found = lessons::examined(settings, loaded);
    if (found.problem) {
        lessons::problem_json(found.schedule, *found.problem);
        return;
    }
    lessons::examined_json(found, true);
    lessons::timing_page(found);
    chart_part(found.chart());
}
void read_schedule(const Text& input) {
    show(read_schedule_json(input, "schedule.json"));
}
void read_schedule_table(const Text& input) {
    show({read_schedule_csv(input, "schedule.csv"), {}, {}});
}

Texts schedules(Text (*text_of)(const Schedule&)) {
    return {text_of(make_schedule("1f1b", {2, 3, 1})),
            text_of(make_schedule("interleaved", {2, 2, 2})),
            text_of(make_schedule("zb-v", {2, 2, 2}))};
}

NamedTensors some_tensors() {
    return {{"half", HostTensor(Shape{3}, DType::bf16)},
            {"w", HostTensor::of<float>({2, 3}, {1, -2, 3.5, 0, -0.f, 1e-30f})}};
}

Text safetensors(const std::map<Text, Text>& metadata) {
    const fs::path path = file_of("", "seed");
    write_safetensors(path, some_tensors(), metadata);
    return read_file(path);
}

/// The input is a checkpoint's index and its only file.
void read_checkpoint_folder(const Text& input) {
    const auto [index, tensors] = two_files(input);
    const fs::path place = file_of(index, "saved/index.json").parent_path();
    file_of(tensors, "saved/rank-0.safetensors");
    attempt<std::system_error>([&] {  // if the index names another file
        CheckpointReader(place).check();
        read_checkpoint(place);
    });
}

Text checkpoint() {
    const Text file = "rank-0.safetensors";
    CheckpointIndex index{"00000000deadbeef", 3, {}, {}};
    for (const auto& [name, values] : some_tensors()) {
        const Shape& shape = values.shape();
        index.tensors[name] = {SavedTensor::Role::parameter,
                               values.dtype(),
                               shape,
                               2,
                               {{file, whole_part(shape), hashes_of(values)}}};
    }
    const Text bytes = safetensors({{kIndexFile, index_text(index)}});
    index.files[file] = bytes.size();
    return index_text(index) + '\x1e' + bytes;
}

/// Compares two records. The input is the first one.
void read_record(const Text& input) {
    static const fs::path right = [] {
        Record record;
        record.outputs = some_tensors();
        const fs::path folder = file_of("", "x").parent_path() / "right";
        write_record(folder, record);
        return folder;
    }();
    const auto [options, tensors] = two_files(input);
    const fs::path left = file_of(options, "left/run.json").parent_path();
    file_of(tensors, "left/outputs.safetensors");
    const Comparison comparison = compare_records(left, right, {});
    comparison.text();
    comparison.json();
}

Readers readers_of_runs() {
    return {
        {"cluster",
         {[](const Text& input) {
              const ClusterSpec spec = load_cluster(file_of(input).string());
              load_cluster(file_of(lessons::cluster_text(spec)).string());
          },
          {R"({"base": "h100", "host": {"flops_f64": 1e9, "memory_bytes": 9},
               "inside": {"alpha_seconds": 1e-6}, "phases": {"forward": 1},
               "stragglers": [{"rank": 1, "compute": 2, "links": 1.5}]})"}}},
        {"measurements",
         {[](const Text& input) {
              lessons::read_measurements(input, "file", {{"verb", "broadcast"}});
          },
          {"verb,ranks,nodes,bytes,us\nall_gather,8,1,1024,20\n",
           "rows,inner,columns,dtype,ms\n64,64,64,f32,0.5\n", "traffic_bytes;us\n8e6;9\n",
           "hidden,heads,tokens,sequences,tensor_parallel,recompute,forward_ms\n"
           "64,4,16,2,2,layers,3\n",
           "# all_reduce_perf\n# Rank 0 Group 0 Pid 7 on a device 0\n# Rank 1 on a\n"
           "1024 256 float sum -1 12.5 8.19 8.19 0 12.5 8.19 8.19 0\n",
           "0: 1024 256 float 12.5 8.19 12.28 0\n"}}},
        {"service",
         {[](const Text& input) { require_possible(lessons::read_service(input, "f")); },
          {Text(lessons::example_service()),
           R"({"model": "vocabulary=64,context=32,layers=2,hidden=16,heads=2",
               "numbers": true, "cluster": "unit", "cache": {"pages": 9},
               "requests": [{"arrival": 0.5, "prompt": 8, "output": 2}]})"}}},
        {"schedule_json", {read_schedule, schedules(schedule_json)}},
        {"schedule_csv", {read_schedule_table, schedules(schedule_csv)}},
        {"schedule_pytorch", {read_schedule_table, schedules(pytorch_csv)}},
        {"safetensors",
         {[](const Text& input) { read_safetensors(file_of(input)); },
          {safetensors({{"who", "a \"test\""}})}}},
        {"checkpoint", {read_checkpoint_folder, {checkpoint()}}},
        {"record", {read_record, {run_json({}) + '\x1e' + safetensors({})}}}};
}

// What people write and type.

void read_command(const Text& input) {
    const lessons::Request request = lessons::read_request(lines_of(input));
    if (const auto* lesson = std::get_if<lessons::LessonRequest>(&request))
        understood(lesson->options, lessons::find_lesson(lesson->slug));
}

void read_typed(const Text& input) {
    using lessons::Figure;
    for (const Figure& answer : {Figure::bytes(6000), Figure::time(45'400'000),
                                 Figure::percent(25), Figure::seconds(12)}) {
        lessons::Prediction prediction;
        prediction.answer = answer;
        lessons::judge(prediction, input);
    }
}

void read_notebook(const Text& input) {
    const lessons::Notebook notebook(file_of(input), "key");
    for (const auto& [options, notes] : notebook.notes())
        json_of(notes).dump();
}

void read_answers(const Text& input) {
    const FoundMistake answer(input, "answers.json", "ring");
    attempt([&] { answer.ranks(4); });
    attempt([&] { answer.line(); });
    attempt([&] { answer.cause({"wrong_peer", "no_wait"}); });
}

Readers readers_of_people() {
    return {
        {"text",
         {[](const Text& input) { unigram_entropy(lessons::read_text(input, "text")); },
          {"words\n\xe4\xb8\xad"}}},
        {"numbers",
         {[](const Text& input) { lessons::read_csv(input, "data"); },
          {"date;price\n1;\"2.5\"\n", "1,2\n3,-4e5\n"}}},
        {"command",
         {read_command,
          {"lesson\ndata-parallel\n--ranks=4\n--set\nbatch=8\n--seed=7\n--step=2",
           "schedule\n1f1b\n--stages=4\n--micro-batches=8\n--comm=0.5,1\n--json",
           "mesh\ndp=2,tp=4\n--rank=3\n--model=llama2-13b\n--zero=1",
           "serve\nfile.json\n--rate=1,2.5\n--mesh=dp=2",
           "grade\nring-all-reduce\n.\n--format=junit\n--drawn=4"}}},
        {"typed", {read_typed, {"1,500", " 1/4 ", "25%", "150 KiB", "4.54e1 us"}}},
        {"notebook",
         {read_notebook,
          {R"({"step": 2, "done": false, "runs": {"key": {"record": "5d", "predictions":
               {"a": {"typed": ["1"], "outcome": "right", "figure": "2"}}}}})"}}},
        {"page_request",
         {[](const Text& input) { lockstep_call(input.c_str()); },
          {R"({"do": "schedule", "name": "zb-v", "stages": 2, "micro_batches": "3",
               "chunks": 2, "forward": "1,2", "messages": true, "all": true})",
           R"({"do": "schedule", "name": "a", "work": "F0,F1,B0,B1\nF0,B0,F1,B1"})",
           R"({"do": "judge", "typed": "2 us", "prediction": {"value": 3,
               "unit": "time", "digits": 0, "hints": [{"wrong": 2}]}})"}}},
        {"answers",
         {read_answers,
          {R"({"ring": {"ranks": [0, 2], "line": 17, "cause": "no_wait"}})"}}}};
}

// What students' programs and their compilers send to the grader.

void read_grades(const Text& input) {
    lessons::Assignment assignment;
    assignment.criteria = {{"a1", "sums", 5, "", {}}};
    lessons::GradeTable table(assignment, file_of(input, "grades.csv"));
    table.keep(0, "ann", "f00d");
    table.keep(1, "bob", "");
    table.write();
}

/// Writes a report about a program that printed the input.
void read_said(const Text& input) {
    lessons::GradeReport report;
    report.criteria = {{.id = "a1", .asked = "a sum", .said = input}};
    report.build_failure = {"ring.cpp", 7, input, input};
    for (const auto& [name, format] : lessons::kGradeFormats)
        grade_text_of(report, format, 40, true);
}

/// Reads the input's numbers as the plan of a batcher.
void read_plan(const Text& input) {
    const lessons::decode::Batch batch{{4, 2, 2, 2}, {{2, 2, 0}, {1, 2, 1}}};
    const auto rows = static_cast<std::int64_t>(input.size() / (6 * sizeof(int)));
    HostTensor left(Shape{rows, 6}, DType::i32);
    std::copy_n(input.data(), left.bytes(), reinterpret_cast<char*>(left.data()));
    if (const auto plan = lessons::decode::read_plan(left, batch.rules, 8))
        lessons::decode::replayed(batch, *plan);
}

/// Before each message come two bytes: its length, and its rank in the lowest bit.
void read_requests(const Text& input) {
    std::vector<Script> scripts(2);
    for (std::string_view rest = input; rest.size() >= 2;) {
        std::uint16_t head = 0;
        std::memcpy(&head, rest.data(), sizeof head);
        scripts[head & 1].emplace_back(rest.substr(sizeof head, head >> 1));
        rest.remove_prefix(std::min<std::size_t>(rest.size(), sizeof head + (head >> 1)));
    }
    run_of(scripts);
}

Texts requests() {
    Texts all;
    for (const auto& some : {device_requests(), other_requests()})
        for (const Request& request : some) {
            Text& bytes = all.emplace_back();
            for (const int rank : {0, 1})
                for (const Text& message : script_of(request.script(rank))) {
                    const auto head =
                        static_cast<std::uint16_t>(message.size() << 1 | rank);
                    bytes.append(reinterpret_cast<const char*>(&head), sizeof head);
                    bytes += message;
                }
        }
    return all;
}

Readers readers_of_grader() {
    const Text row("\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\1\0\0\0\377\377\377\377", 24);
    return {
        {"compiler",
         {[](const Text& input) {
              lessons::first_error(input, file_of("", "a").parent_path());
          },
          {"In file included from a:1:\n/usr/x.hpp:3:4: error: bad\n    3 | x\n",
           "ld: a:5: undefined reference to `f()'\n"}}},
        {"grades",
         {read_grades,
          {"submission,earned,points,a1,seconds,note,fingerprint\nann,5,5,5,1.0,,f00d\n"
           "\"o, b\",,,,,not graded,\n"}}},
        {"said", {read_said, {"rank 1: \x1b[31mred\x1b[0m\ttab\n\xe2\x80\xae \xff"}}},
        {"plan", {read_plan, {row + row}}},
        {"requests", {read_requests, requests()}}};
}

// What comes from sockets and the environment.

/// Returns a socket that has received these bytes, and then the end.
os::Descriptor socket_with(const Text& bytes) {
    os::SocketPair line = os::make_socket_pair(SOCK_STREAM);
    os::write_all(line.theirs.number(), bytes, "a socket");
    return std::move(line.ours);
}

void read_frames(const Text& input) {
    const os::Descriptor socket = socket_with(input);
    lessons::Frames frames(socket.number());
    while (frames.receive()) {
    }
}

void read_launcher(const Text& input) {
    gpu::Connection line(socket_with(input));
    line.accept_bodies_of(input.size());
    line.transfer(POLLIN);
    while (const auto message = line.next()) {
        const Text& body = *message->body;
        attempt<gpu::ProtocolError>([&] { gpu::unpack<gpu::Hello>(body); });
        attempt<gpu::ProtocolError>([&] { gpu::unpack<gpu::Pace>(body); });
        attempt<gpu::ProtocolError>([&] { gpu::unpack<Texts>(body); });
    }
}

Text launcher_message(gpu::MessageKind kind, const Text& body) {
    return gpu::header_bytes({kind, body, 1}) + body;
}

/// Each line is a variable. Its value is also read as an address and as a list.
void read_environment(const Text& input) {
    std::map<Text, Text> set;
    for (const Text& line : lines_of(input)) {
        const std::size_t end = std::min(line.find('='), line.size());
        const Text value = line.substr(std::min(end + 1, line.size()));
        set[line.substr(0, end)] = value;
        attempt([&] { gpu::parse_address(value, "ADDRESS"); });
        attempt([&] { gpu::first_host(value, "LIST"); });
        attempt([&] { gpu::tasks_of_node(value, 5, "TASKS"); });
    }
    gpu::find_placement([&](const Text& name) {
        const auto found = set.find(name);
        return found == set.end() ? std::nullopt : std::optional(found->second);
    });
}

Readers readers_of_processes() {
    using enum gpu::MessageKind;
    return {
        {"frames", {read_frames, {Text("\3\0\0\0\0\0\0\0abc", 11)}}},
        {"launcher",
         {read_launcher,
          {launcher_message(hello, gpu::pack(gpu::Hello{2, 4, 1, 7})) +
               launcher_message(pace, gpu::pack(gpu::Pace::stuck)),
           launcher_message(result, gpu::pack(Texts{"one", "two"}))}}},
        {"environment",
         {read_environment,
          {"SLURM_PROCID=1\nSLURM_STEP_ID=0\nSLURM_JOB_ID=7\nSLURM_NTASKS=8\n"
           "SLURM_NODEID=0\nSLURM_STEP_TASKS_PER_NODE=4(x2),3\nSLURM_LOCALID=1\n"
           "SLURM_STEP_NODELIST=gpu[01-04,07],login1",
           "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=host\n"
           "MASTER_PORT=29500\nLOCKSTEP_RENDEZVOUS=[::1]:29500\nNCCL_COMM_ID=unix:a"}}}};
}

void (*chosen)(const Text& input) = nullptr;

/// Chooses the reader, and writes its seeds into the first folder that is named.
void begin(const Texts& words) {
    Readers all = readers_of_runs();
    all.merge(readers_of_people());
    all.merge(readers_of_grader());
    all.merge(readers_of_processes());
    auto reader = all.end();
    for (const Text& word : words)
        if (word.starts_with("--reader=")) reader = all.find(word.substr(9));
    if (reader == all.end()) {
        std::cerr << "usage: readers --reader=NAME [FOLDER] [libFuzzer's options]; NAME:";
        for (const auto& [name, ignored] : all)
            std::cerr << ' ' << name;
        std::cerr << '\n';
        std::exit(2);
    }
    chosen = reader->second.read;
    const auto folder = std::ranges::find_if(
        words, [](const Text& word) { return fs::is_directory(word); });
    for (std::size_t i = 0; folder != words.end() && i < reader->second.seeds.size(); ++i)
        write_file(fs::path(*folder) / std::to_string(i), reader->second.seeds[i]);
}

}  // namespace

}  // namespace lockstep::test

// What libFuzzer and the sanitizers call.

extern "C" const char* __ubsan_default_options() {
    return "halt_on_error=1:print_stacktrace=1";
}

extern "C" int LLVMFuzzerInitialize(int* count, char*** words) {
    lockstep::test::begin({*words + 1, *words + *count});
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const char* bytes, std::size_t size) {
    lockstep::test::attempt([&] { lockstep::test::chosen({bytes, size}); });
    return 0;
}
