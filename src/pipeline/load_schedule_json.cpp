#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/pipeline/counted_text.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/load_schedule_gather.hpp"

namespace lockstep {

namespace {

using Json = nlohmann::json;

/// What the parser says of bad syntax, without what it says of itself.
std::string reason_of(std::string_view text) {
    for (const std::string_view opening : {"] ", "error at ", " - "}) {
        const std::size_t at = text.find(opening);
        if (at != text.npos) text.remove_prefix(at + opening.size());
    }
    return std::string(text.substr(0, text.find("; last read")));
}

/// Takes the file's values as the parser comes to them.
class ScheduleReader final : public nlohmann::json_sax<Json> {
  public:
    ScheduleReader(std::string_view text, const std::string& file)
        : text_(text), file_(file), gathered_(file) {}

    Schedule read() {
        Json::sax_parse(text_.begin(), text_.end(), this);
        if (!keys_.contains("schedule"))
            throw UsageError(
                file_ +
                ": \"schedule\" is missing: a list for each stage, of "
                "instructions such as \"F0\"");
        return gathered_.finish();
    }

    bool null() override { return value(Kind::other, "null"); }
    bool boolean(bool given) override {
        return value(Kind::other, given ? "true" : "false");
    }
    bool number_integer(std::int64_t number) override {
        return value(Kind::number, std::to_string(number));
    }
    bool number_unsigned(std::uint64_t number) override {
        return value(Kind::number, std::to_string(number));
    }
    bool number_float(double /*number*/, const std::string& text) override {
        return value(Kind::number, text);
    }
    bool string(std::string& text) override {
        return value(Kind::text, text);
    }
    bool binary(Json::binary_t& /*bytes*/) override {
        return value(Kind::other, "binary");
    }
    bool start_object(std::size_t /*size*/) override {
        return begin(Kind::object, "an object");
    }
    bool start_array(std::size_t /*size*/) override {
        return begin(Kind::list, "a list");
    }
    bool end_object() override { return end(); }
    bool end_array() override { return end(); }
    bool key(std::string& name) override;
    bool parse_error(std::size_t byte, const std::string& token,
                     const Json::exception& error) override;

  private:
    enum class Kind { text, number, list, object, other };

    bool begin(Kind kind, std::string_view text);
    bool end();
    bool value(Kind kind, std::string_view text);
    void member(Kind kind, std::string_view text);
    void list_of(Kind kind, std::string_view text);
    void element(Kind kind, std::string_view text);
    int whole(Kind kind, std::string_view text, int least, int most,
              const std::string& what);
    [[noreturn]] void fail(const std::string& what, Kind kind,
                           std::string_view text,
                           const std::string& expected);

    CountedText text_;
    std::string file_;
    GatheredSchedule gathered_;
    std::set<std::string> keys_;
    std::string key_;
    int line_ = 1;     ///< of the value at hand
    int depth_ = 0;    ///< 1 inside the file's object, 2 and 3 inside lists
    int skipped_ = 0;  ///< depth inside a value that says nothing here
};

/// What timing_json() writes beside the schedule.
bool is_known_output(const std::string& key) {
    constexpr std::array kOutputs{"durations",
                                  "kept_memory",
                                  "makespan",
                                  "longest_stage",
                                  "ideal",
                                  "bubble_time",
                                  "idle",
                                  "bubble_over_total",
                                  "bubble_over_ideal",
                                  "utilisation",
                                  "in_flight",
                                  "between_halves",
                                  "peak_memory",
                                  "weight_versions",
                                  "start",
                                  "end",
                                  "critical_path",
                                  "communication",
                                  "time_origin",
                                  "spans"};
    return std::ranges::find(kOutputs, key) != kOutputs.end();
}

bool ScheduleReader::key(std::string& name) {
    if (skipped_ > 0) return true;
    constexpr std::array kKeys{"name",   "stages",   "micro_batches",
                               "chunks", "schedule", "parts"};
    const bool known = std::ranges::find(kKeys, name) != kKeys.end();
    if (!known && !is_known_output(name))
        gathered_.fail(
            text_.line(),
            fmt::format("the key {} is not known; a schedule has \"name\", "
                        "\"stages\", \"micro_batches\", \"chunks\", "
                        "\"schedule\" and \"parts\"",
                        shown_text(name)));
    if (!keys_.insert(name).second)
        gathered_.fail(
            text_.line(),
            fmt::format("the key {} is there twice", shown_text(name)));
    key_ = name;
    return true;
}

bool ScheduleReader::begin(Kind kind, std::string_view text) {
    if (skipped_ > 0 || (depth_ == 1 && is_known_output(key_))) {
        ++skipped_;
        return true;
    }
    value(kind, text);
    ++depth_;
    return true;
}

bool ScheduleReader::end() {
    --(skipped_ > 0 ? skipped_ : depth_);
    return true;
}

bool ScheduleReader::value(Kind kind, std::string_view text) {
    if (skipped_ > 0) return true;
    // To see where a number ends, the parser has read one byte more.
    line_ = text_.line(kind == Kind::number ? 1 : 0);
    if (depth_ == 0) {
        if (kind != Kind::object)
            fail("the file", kind, text,
                 "an object with the key \"schedule\"");
    } else if (depth_ == 1) {
        member(kind, text);
    } else if (depth_ == 2) {
        list_of(kind, text);
    } else {
        element(kind, text);
    }
    return true;
}

void ScheduleReader::member(Kind kind, std::string_view text) {
    const std::string what = "\"" + key_ + "\"";
    if (key_ == "name") {
        if (kind != Kind::text) fail(what, kind, text, "text");
        gathered_.name = text;
    } else if (key_ == "stages") {
        gathered_.stages = {whole(kind, text, 1, kMostStages, what), line_};
    } else if (key_ == "micro_batches") {
        gathered_.micro_batches = {
            whole(kind, text, 1, kMostMicroBatches, what), line_};
    } else if (key_ == "chunks") {
        gathered_.chunks = {whole(kind, text, 1, kMostChunks, what), line_};
    } else if (key_ == "schedule" || key_ == "parts") {
        if (kind != Kind::list)
            fail(what, kind, text, "a list with a list for each stage");
        if (key_ == "parts") gathered_.parts_line = line_;
    }
}

void ScheduleReader::list_of(Kind kind, std::string_view text) {
    const bool parts = key_ == "parts";
    const std::size_t stage =
        parts ? gathered_.parts.size()
              : static_cast<std::size_t>(gathered_.stages_so_far());
    if (kind != Kind::list)
        fail(fmt::format("stage {} of \"{}\"", stage, key_), kind, text,
             parts ? "a list of numbers" : "a list of instructions");
    if (!parts)
        gathered_.add_stage(line_);
    else if (stage < kMostStages)
        gathered_.parts.emplace_back();
    else
        gathered_.fail(
            line_, fmt::format("\"parts\" has more than {} lists, which is "
                               "how many stages are possible",
                               kMostStages));
}

void ScheduleReader::element(Kind kind, std::string_view text) {
    if (key_ == "parts") {
        constexpr int kMostPart = kMostStages * kMostChunks - 1;
        gathered_.parts.back().push_back(
            whole(kind, text, 0, kMostPart, "a part of the model"));
        return;
    }
    if (kind != Kind::text)
        fail(fmt::format("stage {}'s instruction {}",
                         gathered_.stages_so_far() - 1,
                         gathered_.instructions_so_far() + 1),
             kind, text, "text such as \"F0\"");
    gathered_.add_instruction(text, line_);
}

int ScheduleReader::whole(Kind kind, std::string_view text, int least,
                          int most, const std::string& what) {
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    if (kind != Kind::number || error != std::errc{} || stopped != end ||
        number < least || number > most)
        fail(what, kind, text,
             fmt::format("a whole number from {} to {}", least, most));
    return number;
}

void ScheduleReader::fail(const std::string& what, Kind kind,
                          std::string_view text,
                          const std::string& expected) {
    const std::string found =
        kind == Kind::text ? shown_text(text) : std::string(text);
    gathered_.fail(line_, fmt::format("{} is {}; {} is expected", what,
                                      found, expected));
}

bool ScheduleReader::parse_error(std::size_t byte, const std::string& token,
                                 const Json::exception& error) {
    const auto [line, column] = text_.line_and_column(byte);
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr)
        gathered_.fail(line,
                       fmt::format("the number {} is too large to be one",
                                   shown_text(token)));
    gathered_.fail(line, fmt::format("this is not JSON, at column {}: {}",
                                     column, reason_of(error.what())));
}

}  // namespace

Schedule read_schedule_json(const std::string& text,
                            const std::string& name) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::string_view bytes = text;
    if (bytes.starts_with(kByteOrderMark))
        bytes.remove_prefix(kByteOrderMark.size());
    require(bytes.find_first_not_of(" \t\r\n") != bytes.npos,
            [&] { return name + " is empty"; });
    return ScheduleReader(bytes, name).read();
}

}  // namespace lockstep
