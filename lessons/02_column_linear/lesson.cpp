#include "lessons/02_column_linear/lesson.hpp"

#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kDefaultRanks = 3;
constexpr std::int64_t kHidden = 192;

void require_shared_out(const char* setting, std::int64_t count, int ranks) {
    require(count % ranks == 0,
            "--set {}={}: {} columns cannot be shared out to {} ranks; "
            "each must get as many",
            setting, count, count, ranks);
}

}  // namespace

ColumnLinear::ColumnLinear(const LessonOptions& options, Record& record)
    : Lesson(options, record), ranks_(options.ranks.value_or(kDefaultRanks)) {
    require(ranks_ <= kMostRanks,
            "--ranks {}: this lesson shares a layer out to at most {} "
            "ranks",
            ranks_, kMostRanks);
    const std::int64_t hidden = least_multiple(ranks_, kHidden);
    sizes_.rows = options.values.integer("rows");
    sizes_.hidden = options.values.integer("hidden", hidden);
    sizes_.inner = options.values.integer("inner", 4 * sizes_.hidden);
    require_shared_out("hidden", sizes_.hidden, ranks_);
    require_shared_out("inner", sizes_.inner, ranks_);
    // The MLP's y is a sum over the inner columns of sums over x's, its
    // gradients are sums over rows of these.
    record.options.sum_length = sizes_.rows + sizes_.hidden + sizes_.inner;
}

std::vector<Step> ColumnLinear::steps() {
    return {step("A column each", &ColumnLinear::multiply_by_columns),
            step("Columns of what?", &ColumnLinear::find_the_layer),
            step("Columns: forward or backward?", &ColumnLinear::split_columns),
            step("Rows instead", &ColumnLinear::split_rows),
            step("Columns, then rows", &ColumnLinear::pair),
            step("What it costs", &ColumnLinear::count_bytes)};
}

void ColumnLinear::check_equal(Page& page, const std::string& name, std::int64_t figure) {
    check_values(page, Check::equal(name, static_cast<double>(figure), 0));
}

void ColumnLinear::check_bound(Page& page, const std::string& name, double difference) {
    check_values(page, name, difference, options().dtype == DType::f64 ? 1e-13 : 1e-5);
}

RunReport ColumnLinear::pass_alone(const Task& task, bool trace) const {
    return pass(*make_cluster(options(), 1, trace), task);
}

RunReport ColumnLinear::pass_together(const Task& task, bool trace) const {
    return pass(*make_cluster(options(), ranks_, trace), task);
}

RunReport ColumnLinear::pass_wrongly(const Task& task) const {
    return pass(*make_cluster(options().without_full_check(), ranks_), task);
}

std::int64_t ColumnLinear::sent(std::int64_t factor, std::int64_t bytes) const {
    const std::int64_t t = ranks_;
    return factor * (t - 1) * (bytes / t);
}

void ColumnLinear::show_rest(Page& page) const {
    if (ranks_ > kShownRanks)
        page.verbatim(fmt::format("   and so on, up to device {}", ranks_ - 1));
}

void ColumnLinear::check_all_reduce(Page& page, const RunReport& report,
                                    const std::string& half, const std::string& tensor) {
    const std::int64_t size = kept(report, 0, tensor).bytes();
    const std::int64_t bytes = sent(2, size);
    page.predict(fmt::format("{} has {} bytes. How many bytes does a "
                             "device send {}?",
                             tensor, size, half),
                 static_cast<double>(bytes), "bytes",
                 fmt::format("2(t-1)/t * S = 2 * {}/{} * {}", ranks_ - 1, ranks_, size));
    page.check(Check::equal("bytes that device 0 sent " + half,
                            static_cast<double>(bytes_of_half(report, 0, half)),
                            static_cast<double>(bytes)));
}

LessonEntry column_linear_lesson() {
    LessonEntry entry;
    entry.slug = "column-linear";
    entry.title = "A linear layer by columns and by rows";
    entry.question =
        "How do several devices compute one linear layer, and what must "
        "they tell each other?";
    entry.default_ranks = kDefaultRanks;
    entry.settings = {
        {"rows", "of the MLP's input", Whole{1, 1 << 12, 256}},
        {"hidden", "columns of the MLP's input and output", Whole{1, 1 << 12},
         "192, or the next number that the ranks divide", false},
        {"inner", "columns between the MLP's two layers", Whole{1, 1 << 14},
         "4 times hidden", false},
    };
    entry.make = make_lesson<ColumnLinear>;
    return entry;
}

}  // namespace lockstep::lessons
