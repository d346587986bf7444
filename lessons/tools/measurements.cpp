#include "lessons/tools/measurements.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/collectives.hpp"
#include "src/report/csv_cells.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::size_t kMostMeasurements = 2'000;
constexpr std::int64_t kMostMeasuredRanks = 16'384;
constexpr std::int64_t kMostMeasuredBytes = std::int64_t{1} << 42;
constexpr std::int64_t kMostMeasuredExtent = std::int64_t{1} << 20;

/// Verbs that nccl-tests has, with the names of its programs.
constexpr std::pair<Verb, const char*> kPrograms[] = {
    {Verb::all_reduce, "all_reduce_perf"},
    {Verb::all_gather, "all_gather_perf"},
    {Verb::reduce_scatter, "reduce_scatter_perf"},
    {Verb::all_to_all, "alltoall_perf"},
    {Verb::broadcast, "broadcast_perf"},
    {Verb::reduce, "reduce_perf"},
    {Verb::gather, "gather_perf"},
    {Verb::scatter, "scatter_perf"}};

Verb verb_called(const std::string& name, const std::string& place) {
    std::vector<std::string> names;
    for (const auto& [verb, program] : kPrograms) {
        if (name == name_of(verb)) return verb;
        names.emplace_back(name_of(verb));
    }
    throw UsageError(fmt::format("{}: verb '{}' is not known; {} are", place,
                                 printable(name), fmt::join(names, ", ")));
}

std::int64_t whole(const std::string& text, const std::string& column,
                   const std::string& place, std::int64_t least, std::int64_t most) {
    const std::optional<double> number = parse_typed_number(text);
    const bool fits = number && *number >= static_cast<double>(least) &&
                      *number <= static_cast<double>(most) &&
                      *number == static_cast<double>(static_cast<std::int64_t>(*number));
    require(fits, "{}: {} is '{}'; a whole number from {} to {} is expected", place,
            column, printable(text), least, most);
    return static_cast<std::int64_t>(*number);
}

double seconds_in(const std::string& text, double unit, const std::string& column,
                  const std::string& place) {
    const std::optional<double> number = parse_typed_number(text);
    require(number && *number * unit >= 1e-9 && *number * unit <= 10'000,
            "{}: {} is '{}'; a time from 1 ns to 10000 seconds is expected", place,
            column, printable(text));
    return *number * unit;
}

/// A row of a CSV file by the names of its columns.
class NamedRow {
  public:
    NamedRow(const std::vector<std::string>& head, const CsvRow& row,
             const std::map<std::string, std::string>& given, const std::string& file)
        : place_(fmt::format("{}:{}", file, row.line)) {
        require(row.cells.size() == head.size(),
                "{}: this row has {} cells, and the first row {} names", place_,
                row.cells.size(), head.size());
        for (std::size_t i = 0; i < head.size(); ++i)
            cells_[head[i]] = row.cells[i];
        for (const auto& [column, value] : given)
            cells_[column] = value;
    }

    const std::string& place() const { return place_; }
    bool has(const std::string& column) const { return !text(column, "").empty(); }
    std::string text(const std::string& column, const std::string& otherwise) const {
        const auto found = cells_.find(column);
        return found == cells_.end() || found->second.empty() ? otherwise : found->second;
    }
    std::int64_t number(const std::string& column, std::int64_t least, std::int64_t most,
                        const std::string& otherwise = "") const {
        return whole(text(column, otherwise), column, place_, least, most);
    }
    bool yes(const std::string& column) const {
        return choice(column, {"0", "1", "no", "yes"}) % 2 == 1;
    }
    /// Returns the index of the value among `names`. The first one is the default.
    int choice(const std::string& column, const std::vector<std::string>& names) const {
        const std::string value = text(column, names.front());
        const auto found = std::ranges::find(names, value);
        require(found != names.end(), "{}: {} is '{}'; {} is expected", place_, column,
                printable(value), fmt::join(names, ", "));
        return static_cast<int>(found - names.begin());
    }
    /// Returns the time in column PREFIXus, PREFIXms or PREFIXseconds, if there is one.
    std::optional<double> seconds(const std::string& prefix = "") const {
        for (const auto& [unit, length] :
             {std::pair{"us", 1e-6}, std::pair{"ms", 1e-3}, std::pair{"seconds", 1.0}})
            if (const std::string value = text(prefix + unit, ""); !value.empty())
                return seconds_in(value, length, prefix + unit, place_);
        return std::nullopt;
    }

  private:
    std::map<std::string, std::string> cells_;
    std::string place_;
};

double time_of(const NamedRow& row) {
    const std::optional<double> seconds = row.seconds();
    require(seconds.has_value(),
            "{}: the time is missing; a column us, ms or seconds is expected",
            row.place());
    return *seconds;
}

MeasuredCollective collective_of(const NamedRow& row) {
    const auto ranks = static_cast<int>(row.number("ranks", 2, kMostMeasuredRanks));
    const auto nodes = static_cast<int>(row.number("nodes", 0, ranks, "0"));
    return {verb_called(row.text("verb", ""), row.place()), ranks, nodes,
            row.number("bytes", 1, kMostMeasuredBytes)};
}

MeasuredProduct product_of(const NamedRow& row) {
    constexpr DType kTypes[] = {DType::bf16, DType::f32, DType::f64};
    const int type = row.choice("dtype", {"bf16", "f32", "f64"});
    return {row.number("rows", 1, kMostMeasuredExtent),
            row.number("inner", 1, kMostMeasuredExtent),
            row.number("columns", 1, kMostMeasuredExtent), kTypes[type]};
}

MeasuredLayer layer_of(const NamedRow& row) {
    using Recompute = MeshOptions::Recompute;
    constexpr Recompute kRecompute[] = {Recompute::nothing, Recompute::attention,
                                        Recompute::layers};
    MeasuredLayer layer;
    layer.hidden = row.number("hidden", 1, 1 << 16);
    layer.heads = row.number("heads", 1, layer.hidden);
    layer.tokens = row.number("tokens", 1, 1 << 16);
    layer.sequences = row.number("sequences", 1, 1 << 12);
    layer.tensor_parallel = static_cast<int>(row.number("tensor_parallel", 1, 64, "1"));
    layer.sequence_parallel = row.yes("sequence_parallel");
    layer.recompute =
        kRecompute[row.choice("recompute", {"nothing", "attention", "layers"})];
    const int t = layer.tensor_parallel;
    require(layer.hidden % layer.heads == 0 && layer.heads % t == 0,
            "{}: hidden {} is expected to be a multiple of heads {}, and heads of "
            "tensor_parallel {}",
            row.place(), layer.hidden, layer.heads, t);
    require(
        !layer.sequence_parallel || (t > 1 && layer.tokens % t == 0),
        "{}: sequence_parallel needs tensor_parallel of 2 or more, and tokens {} as a "
        "multiple of it",
        row.place(), layer.tokens);
    return layer;
}

void add_row(const NamedRow& row, std::vector<Measurement>& rows) {
    if (row.has("hidden")) {
        MeasuredLayer layer = layer_of(row);
        const std::optional<double> forward = row.seconds("forward_");
        const std::optional<double> backward = row.seconds("backward_");
        require(forward || backward,
                "{}: the times are missing; columns forward_ms and backward_ms are "
                "expected",
                row.place());
        if (forward) rows.push_back({layer, *forward});
        layer.backward = true;
        if (backward) rows.push_back({layer, *backward});
    } else if (row.has("inner")) {
        rows.push_back({product_of(row), time_of(row)});
    } else if (row.has("traffic_bytes")) {
        rows.push_back(
            {MeasuredTraffic{row.number("traffic_bytes", 1, kMostMeasuredBytes)},
             time_of(row)});
    } else {
        rows.push_back({collective_of(row), time_of(row)});
    }
}

void require_kind(const std::set<std::string>& columns, const std::string& name) {
    const auto has_all = [&](const std::vector<std::string>& needed) {
        return std::ranges::all_of(
            needed, [&](const std::string& column) { return columns.contains(column); });
    };
    require(has_all({"verb", "ranks", "bytes"}) ||
                has_all({"rows", "inner", "columns"}) || has_all({"traffic_bytes"}) ||
                has_all({"hidden", "heads", "tokens", "sequences"}),
            "{}: the columns are {}; expected are verb, ranks, bytes (a collective), or "
            "rows, inner, columns (a product), or traffic_bytes (memory), or hidden, "
            "heads, tokens, sequences (a layer); --with COLUMN=VALUE adds one",
            name, printable(fmt::format("{}", fmt::join(columns, ", "))));
}

std::vector<Measurement> read_csv(const std::string& text, const std::string& name,
                                  const std::map<std::string, std::string>& given) {
    CsvReader reader(text, name);
    CsvRow head, row;
    require(reader.next(head), "{}: the file is empty; a row of column names is expected",
            name);
    std::set<std::string> columns(head.cells.begin(), head.cells.end());
    for (const auto& [column, value] : given)
        columns.insert(column);
    require_kind(columns, name);
    std::vector<Measurement> rows;
    while (reader.next(row) && rows.size() <= kMostMeasurements)
        add_row(NamedRow(head.cells, row, given, name), rows);
    return rows;
}

std::vector<std::string> words_in(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

bool is_whole(const std::string& word) {
    return word.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns whether a line is a row of a table of nccl-tests: size, count, type, numbers.
bool is_printed_row(const std::vector<std::string>& words) {
    constexpr std::size_t kLeast = 7;
    return words.size() >= kLeast && is_whole(words[0]) && is_whole(words[1]) &&
           !is_whole(words[2]);
}

/// Returns the length of what a launcher puts before each line: "[1,0]<stdout>:" (mpirun
/// --tag-output) or "0: " (srun --label).
std::size_t tag_of(const std::string& line) {
    constexpr std::string_view kTag = "<stdout>:";
    if (const std::size_t at = line.find(kTag); at != std::string::npos)
        return at + kTag.size();
    const std::size_t digits = line.find_first_not_of(" 0123456789");
    return digits != std::string::npos && digits > 0 && line[digits] == ':' ? digits + 1
                                                                            : 0;
}

/// Reads what nccl-tests printed, line by line.
class PrintedTable {
  public:
    PrintedTable(std::string name, const std::map<std::string, std::string>& given)
        : name_(std::move(name)) {
        const std::string place = "--with";
        if (const auto verb = given.find("verb"); verb != given.end())
            given_verb_ = verb_called(verb->second, place);
        if (const auto ranks = given.find("ranks"); ranks != given.end())
            ranks_ = static_cast<int>(
                whole(ranks->second, "ranks", place, 2, kMostMeasuredRanks));
        if (const auto nodes = given.find("nodes"); nodes != given.end())
            nodes_ = static_cast<int>(
                whole(nodes->second, "nodes", place, 1, kMostMeasuredRanks));
    }

    void read(std::string line) {
        ++line_;
        line.erase(0, tag_of(line));
        find_verb(line);
        std::vector<std::string> words = words_in(line);
        if (words.empty()) return;
        if (words[0] == "#") words.erase(words.begin());
        if (words.size() > 1 && words[0] == "Rank") find_host(words);
        if (is_printed_row(words)) add(words);
    }

    std::vector<Measurement> rows() {
        if (given_verb_ || !verb_) verb_ = given_verb_ ? given_verb_ : verb_of_factor();
        require(verb_.has_value(),
                "{}: no line names the verb; --with verb=all_reduce, or another verb, is "
                "expected",
                name_);
        const int ranks = ranks_ ? *ranks_ : counted_ > 0 ? counted_ : ranks_of_factor();
        require(ranks > 1,
                "{}: no line says which ranks there were; --with ranks=N is expected",
                name_);
        const int hosts = static_cast<int>(hosts_.size());
        std::vector<Measurement> rows;
        for (const auto& [bytes, seconds] : times_)
            rows.push_back(
                {MeasuredCollective{*verb_, ranks, nodes_.value_or(hosts), bytes},
                 seconds});
        return rows;
    }

  private:
    /// "all_reduce_perf" occurs in the line that starts the test, or in its first line.
    void find_verb(const std::string& line) {
        for (const auto& [verb, program] : kPrograms)
            if (const std::size_t at = line.find(program);
                at != std::string::npos && (at == 0 || line[at - 1] != '_')) {
                require_first_table(!verb_ || *verb_ == verb);
                verb_ = verb;
            }
    }
    /// "Rank  0 Group  0 Pid  7 on  host device  0 [0x53] NVIDIA H100"
    void find_host(const std::vector<std::string>& words) {
        const auto on = std::ranges::find(words, "on");
        if (on == words.end() || on + 1 == words.end()) return;
        require_first_table(times_.empty());
        hosts_.insert(*(on + 1));
        ++counted_;
    }
    void require_first_table(bool same) const {
        require(same, "{}:{}: a second table begins; a file with one table is expected",
                name_, line_);
    }
    /// size count type redop [root], then time algbw busbw #wrong, out of place and again
    /// in place. Old versions print no root, and some versions one of the two halves.
    void add(const std::vector<std::string>& words) {
        constexpr std::size_t kHalf = 4;
        constexpr std::size_t kLeastFirst = 3;
        const std::size_t halves = words.size() >= kLeastFirst + 2 * kHalf ? 2 : 1;
        const std::string& time = words[words.size() - halves * kHalf];
        const std::string place = fmt::format("{}:{}", name_, line_);
        std::int64_t bytes = 0;
        std::from_chars(words[0].data(), words[0].data() + words[0].size(), bytes);
        if (bytes == 0) return;  // too few for all ranks
        times_.emplace_back(whole(words[0], "size", place, 1, kMostMeasuredBytes),
                            seconds_in(time, 1e-6, "time", place));
        const double rate = parse_number((&time)[1]).value_or(0);
        const double bus = parse_number((&time)[2]).value_or(0);
        if (rate <= fastest_) return;
        fastest_ = rate;
        factor_ = bus / rate;
        reduces_ = std::ranges::any_of(words, [](const std::string& word) {
            return word == "sum" || word == "avg" || word == "max" || word == "min";
        });
    }
    /// Returns the verb that busbw / algbw tells, if it tells one: 2(n-1)/n or (n-1)/n.
    std::optional<Verb> verb_of_factor() const {
        if (factor_ > 1.01) return Verb::all_reduce;
        if (reduces_ && factor_ > 0 && factor_ < 0.99) return Verb::reduce_scatter;
        return std::nullopt;
    }
    /// Returns the number of ranks that busbw / algbw tells, or 0 if several are
    /// possible: both are printed with two decimals.
    int ranks_of_factor() const {
        constexpr double kDigit = 0.005;
        if (fastest_ <= 0) return 0;
        const double error = kDigit * (1 + factor_) / fastest_;
        int found = 0;
        for (int n = 2; n <= kMostMeasuredRanks; ++n) {
            if (std::abs(bus_factor(*verb_, n) - factor_) > error) continue;
            if (found > 0) return 0;
            found = n;
        }
        return found;
    }

    std::string name_;
    int line_ = 0;
    std::optional<Verb> verb_, given_verb_;
    std::optional<int> ranks_, nodes_;
    int counted_ = 0;  ///< ranks that the file names
    std::set<std::string> hosts_;
    std::vector<std::pair<std::int64_t, double>> times_;
    double fastest_ = 0;    ///< algbw of the fastest row
    double factor_ = 0;     ///< its busbw / algbw
    bool reduces_ = false;  ///< whether it has an operation
};

std::vector<Measurement> read_printed(const std::string& text, const std::string& name,
                                      const std::map<std::string, std::string>& given) {
    PrintedTable table(name, given);
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        table.read(line);
    return table.rows();
}

bool is_printed(const std::string& text) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        if (is_printed_row(words_in(line.substr(tag_of(line))))) return true;
    return false;
}

void require_columns(const std::map<std::string, std::string>& given) {
    const std::vector<std::string> known{
        "verb",     "ranks",   "nodes",     "bytes",           "rows",
        "inner",    "columns", "dtype",     "traffic_bytes",   "hidden",
        "heads",    "tokens",  "sequences", "tensor_parallel", "sequence_parallel",
        "recompute"};
    for (const auto& [column, value] : given)
        require(std::ranges::find(known, column) != known.end(),
                "--with {}: {} is expected", printable(column), either(known));
}

}  // namespace

std::vector<Measurement> read_measurements(
    const std::string& bytes, const std::string& name,
    const std::map<std::string, std::string>& given) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    require_columns(given);
    const std::string shown = printable(name);
    const std::string text =
        bytes.starts_with(kByteOrderMark) ? bytes.substr(kByteOrderMark.size()) : bytes;
    std::vector<Measurement> rows = is_printed(text) ? read_printed(text, shown, given)
                                                     : read_csv(text, shown, given);
    require(!rows.empty(), "{}: the file has no measurement", shown);
    require(rows.size() <= kMostMeasurements, "{}: there are more than {} measurements",
            shown, kMostMeasurements);
    return rows;
}

namespace {

std::string words_of_measured(const MeasuredCollective& it) {
    return fmt::format("{} of {} over {} ranks", name_of(it.verb), bytes_text(it.bytes),
                       it.ranks);
}
std::string words_of_measured(const MeasuredProduct& it) {
    return fmt::format("product of ({}, {}) and ({}, {}) in {}", it.rows, it.inner,
                       it.inner, it.columns, name_of(it.dtype));
}
std::string words_of_measured(const MeasuredTraffic& it) {
    return fmt::format("operation that moves {}", bytes_text(it.bytes));
}
std::string words_of_measured(const MeasuredLayer& it) {
    using Recompute = MeshOptions::Recompute;
    std::string text =
        fmt::format("{} of a layer, hidden {}, tensor parallel {}",
                    it.backward ? "backward" : "forward", it.hidden, it.tensor_parallel);
    if (it.sequence_parallel) text += ", sequence parallel";
    if (it.recompute != Recompute::nothing)
        text +=
            it.recompute == Recompute::layers ? ", recomputed" : ", attention recomputed";
    return text;
}

}  // namespace

std::string text_of(const Measurement& measurement) {
    return std::visit([](const auto& it) { return words_of_measured(it); },
                      measurement.what);
}

}  // namespace lockstep::lessons
