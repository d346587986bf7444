#include "src/core/part.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// Returns how many of the rows [from, from + count) exist.
std::int64_t rows_there(std::int64_t all, std::int64_t from, std::int64_t count) {
    return std::clamp<std::int64_t>(all - from, 0, count);
}

/// Returns whether [from, from + count) lies within [0, all).
bool lies_within(std::int64_t from, std::int64_t count, std::int64_t all) {
    return from >= 0 && count <= all && from <= all - count;
}

}  // namespace

std::int64_t matrix_rows(const Shape& shape) {
    return shape.dimensions() == 1 ? shape[0] : shape.matrix_rows();
}

std::int64_t matrix_columns(const Shape& shape) {
    return shape.dimensions() == 1 ? 1 : shape.columns();
}

Part whole_part(const Shape& whole) {
    return {whole, whole, {{0, 0, matrix_rows(whole)}}, 0};
}

namespace {

/// Parts consist of rows and columns.
void require_matrix(const Shape& whole) {
    require(whole.dimensions() <= 2,
            "a tensor of shape {} has no parts; only vectors and matrices do", whole);
}

}  // namespace

Part row_part(const Shape& whole, std::int64_t from, std::int64_t count) {
    require_matrix(whole);
    return {whole,
            whole.with_first(count),
            {{0, from, rows_there(matrix_rows(whole), from, count)}},
            0};
}

Part column_part(const Shape& whole, std::int64_t from, std::int64_t count) {
    return {whole, whole.with_last(count), {{0, 0, matrix_rows(whole)}}, from};
}

Part flat_part(const Shape& whole, std::int64_t from, std::int64_t count) {
    const std::int64_t there = rows_there(whole.elements(), from, count);
    return {whole, Shape::flat(count), {{0, from, there}}, 0, true};
}

Part stacked_part(const Shape& whole, const std::vector<std::int64_t>& layers, int parts,
                  int index, const std::vector<std::int64_t>& shares) {
    require_matrix(whole);
    Part part{whole, whole, {}, 0};
    std::int64_t at = 0, from = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const std::int64_t layer = layers[i];
        const std::int64_t cut =
            i < shares.size() ? std::min<std::int64_t>(parts, shares[i]) : parts;
        require(cut > 0 && parts % cut == 0,
                "a layer is cut into {} shares for {} parts; the number of shares must "
                "divide the number of parts",
                cut, parts);
        const std::int64_t each = (layer + cut - 1) / cut;
        const std::int64_t first = index / (parts / cut) * each;
        part.rows.push_back({at, from + first, rows_there(layer, first, each)});
        at += each;
        from += layer;
    }
    part.shape = whole.with_first(at);
    return part;
}

namespace {

/// Returns the elements that both parts name, as a flat part of the outer whole.
Part flat_part_of_part(const Part& outer, const Part& inner) {
    Part part{outer.whole, inner.shape, {}, 0, true};
    each_run(inner, [&](std::int64_t at, std::int64_t from, std::int64_t count) {
        each_run(outer, [&](std::int64_t there, std::int64_t whole, std::int64_t length) {
            const std::int64_t first = std::max(from, there);
            const std::int64_t last = std::min(from + count, there + length);
            if (first < last)
                part.rows.push_back(
                    {at + first - from, whole + first - there, last - first});
        });
    });
    return part;
}

}  // namespace

Part part_of_part(const Part& outer, const Part& inner) {
    if (outer.flat || inner.flat) return flat_part_of_part(outer, inner);
    Part part{outer.whole, inner.shape, {}, outer.column + inner.column};
    for (const Part::Rows& mine : inner.rows)
        for (const Part::Rows& theirs : outer.rows) {
            const std::int64_t first = std::max(mine.from, theirs.at);
            const std::int64_t last =
                std::min(mine.from + mine.count, theirs.at + theirs.count);
            if (first >= last) continue;
            part.rows.push_back({mine.at + first - mine.from,
                                 theirs.from + first - theirs.at, last - first});
        }
    return part;
}

bool holds_all(const Part& part) {
    return part.shape == part.whole && part.rows.size() == 1 &&
           part.rows[0].count == matrix_rows(part.whole);
}

std::int64_t elements_of(const Part& part) {
    std::int64_t elements = 0;
    each_run(part,
             [&](std::int64_t, std::int64_t, std::int64_t count) { elements += count; });
    return elements;
}

std::vector<Stretches> stretches_of(const Part& part) {
    std::vector<Stretches> all;
    const auto add = [&](std::int64_t, std::int64_t from, std::int64_t count) {
        if (count == 0) return;
        Stretches* const last = all.empty() ? nullptr : &all.back();
        if (last && last->times == 1 && last->from + last->count == from) {
            last->count += count;
            return;
        }
        const bool repeats =
            last && last->count == count && from > last->from &&
            (last->times == 1 || last->from + last->times * last->apart == from);
        if (!repeats) {
            all.push_back({from, count});
            return;
        }
        if (last->times == 1) last->apart = from - last->from;
        ++last->times;
    };
    each_run(part, add);
    return all;
}

namespace {

/// Places [from, from + count) of a whole.
struct Stretch {
    std::int64_t from = 0;
    std::int64_t count = 0;
};

/// Joins stretches that touch each other.
std::vector<Stretch> joined(const std::vector<Stretch>& stretches) {
    std::vector<Stretch> whole;
    for (const Stretch& next : stretches) {
        if (next.count == 0) continue;
        if (!whole.empty() && whole.back().from + whole.back().count == next.from)
            whole.back().count += next.count;
        else
            whole.push_back(next);
    }
    return whole;
}

/// "rows 0–3, 8–11", "row 5"; "rows 0–1, 4–5, 8–9, …, 60–61 (16 stretches)".
std::string stretches_text(const char* what, const std::vector<Stretch>& stretches) {
    constexpr std::size_t kShown = 3;
    std::string text;
    for (std::size_t i = 0; i < stretches.size(); ++i) {
        const auto [from, count] = stretches[i];
        const bool shown =
            stretches.size() <= kShown + 1 || i < kShown || i + 1 == stretches.size();
        if (!shown) continue;
        const bool skipped = i > kShown && stretches.size() > kShown + 1;
        text +=
            fmt::format("{}{}{}", text.empty() ? "" : ", ", skipped ? "…, " : "", from);
        if (count > 1) text += fmt::format("–{}", from + count - 1);
    }
    const bool one = stretches.size() == 1 && stretches.front().count == 1;
    text = fmt::format("{}{} {}", what, one ? "" : "s", text);
    if (stretches.size() > kShown + 1)
        text += fmt::format(" ({} stretches)", stretches.size());
    return text;
}

/// Returns whether the stretches of elements are the same columns of consecutive rows.
bool are_columns(const std::vector<Stretch>& elements, std::int64_t pitch) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const Stretch& first = elements.front();
        const bool fits =
            elements[i].count == first.count &&
            elements[i].from == first.from + static_cast<std::int64_t>(i) * pitch;
        if (!fits) return false;
    }
    const std::int64_t column = elements.front().from % pitch;
    return column + elements.front().count <= pitch;
}

std::string columns_text(const Shape& whole, std::int64_t column, std::int64_t width,
                         const std::vector<Stretch>& rows) {
    const std::string columns = stretches_text("column", {{column, width}});
    const bool all = rows.size() == 1 && rows.front().count == matrix_rows(whole);
    return all ? columns : columns + " of " + stretches_text("row", rows);
}

/// Describes elements of a whole that is laid out flat.
std::string flat_text(const Shape& whole, const std::vector<Stretch>& elements) {
    const std::int64_t pitch = matrix_columns(whole);
    const auto is_of_rows = [&](const Stretch& each) {
        return each.from % pitch == 0 && each.count % pitch == 0;
    };
    if (pitch > 1 && std::all_of(elements.begin(), elements.end(), is_of_rows)) {
        std::vector<Stretch> rows;
        rows.reserve(elements.size());
        for (const auto& [from, count] : elements)
            rows.push_back({from / pitch, count / pitch});
        return stretches_text("row", rows);
    }
    if (pitch > 1 && elements.size() > 1 && are_columns(elements, pitch))
        return columns_text(whole, elements.front().from % pitch, elements.front().count,
                            {{elements.front().from / pitch,
                              static_cast<std::int64_t>(elements.size())}});
    return stretches_text("element", elements);
}

/// ", 1 row of padding"; nothing if there is none.
std::string padding_text(const Part& part, std::int64_t padding) {
    if (padding == 0) return "";
    const bool rows = !part.flat && part.whole.dimensions() > 1 &&
                      part.width() == part.pitch() && padding % part.width() == 0;
    const std::int64_t count = rows ? padding / part.width() : padding;
    return fmt::format(", {} {}{} of padding", count, rows ? "row" : "element",
                       count == 1 ? "" : "s");
}

}  // namespace

std::string text_of(const Part& part) {
    const std::int64_t named = elements_of(part);
    const std::int64_t padding = part.shape.elements() - named;
    const std::string padded = padding_text(part, padding);
    if (named == 0) return padding == 0 ? "nothing" : kPaddingAlone;
    if (named == part.whole.elements()) return "all" + padded;
    std::vector<Stretch> stretches;
    stretches.reserve(part.rows.size());
    for (const Part::Rows& rows : part.rows)
        stretches.push_back({rows.from, rows.count});
    stretches = joined(stretches);
    if (part.flat) return flat_text(part.whole, stretches) + padded;
    if (part.width() < part.pitch())
        return columns_text(part.whole, part.column, part.width(), stretches) + padded;
    return stretches_text(part.whole.dimensions() == 1 ? "element" : "row", stretches) +
           padded;
}

bool is_sound(const Part& part) {
    const auto rows = [&](const Shape& shape) {
        return part.flat ? shape.elements() : matrix_rows(shape);
    };
    const auto is_there = [&](const Part::Rows& block) {
        return block.count == 0 ||
               (block.count > 0 && lies_within(block.at, block.count, rows(part.shape)) &&
                lies_within(block.from, block.count, rows(part.whole)));
    };
    return lies_within(part.column, part.width(), part.pitch()) &&
           std::ranges::all_of(part.rows, is_there);
}

namespace {

struct Run {
    std::int64_t from = 0;  ///< in the whole
    std::int64_t at = 0;    ///< in the shard
    std::int64_t count = 0;
};

std::vector<Run> runs_of(const Part& part) {
    std::vector<Run> runs;
    if (part.width() == 0) return runs;  // however many rows
    each_run(part, [&](std::int64_t at, std::int64_t from, std::int64_t count) {
        runs.push_back({from, at, count});
    });
    return runs;
}

void sort_by_whole(std::vector<Run>& runs) {
    std::ranges::sort(runs, {}, &Run::from);
}

}  // namespace

std::vector<CommonRun> common_runs(const Part& part, const Part& other) {
    std::vector<Run> mine = runs_of(part), theirs = runs_of(other);
    sort_by_whole(mine);
    sort_by_whole(theirs);
    std::vector<CommonRun> common;
    for (auto a = mine.begin(), b = theirs.begin();
         a != mine.end() && b != theirs.end();) {
        const std::int64_t first = std::max(a->from, b->from);
        const std::int64_t last = std::min(a->from + a->count, b->from + b->count);
        if (first < last)
            common.push_back(
                {a->at + first - a->from, b->at + first - b->from, last - first});
        if (a->from + a->count < b->from + b->count)
            ++a;
        else
            ++b;
    }
    return common;
}

bool cover_once(const Shape& whole, const std::vector<Part>& parts) {
    std::vector<Run> runs;
    for (const Part& part : parts) {
        const std::vector<Run> of_part = runs_of(part);
        runs.insert(runs.end(), of_part.begin(), of_part.end());
    }
    sort_by_whole(runs);
    std::int64_t covered = 0;
    for (const Run& run : runs) {
        if (run.from != covered) return false;
        covered += run.count;
    }
    return covered == whole.elements();
}

namespace {

/// Returns whether both shapes are the same matrix: the same numbers of rows and of
/// columns.
bool are_same_matrix(const Shape& a, const Shape& b) {
    return a.elements() == b.elements() && matrix_columns(a) == matrix_columns(b);
}

void require_fit(const HostTensor& whole, const Part& part) {
    require(are_same_matrix(whole.shape(), part.whole) && is_sound(part),
            "a part of a tensor of shape {} was used with a tensor of shape {}, or names "
            "rows that do not exist",
            part.whole, whole.shape());
}

}  // namespace

HostTensor shard_of(const HostTensor& whole, const Part& part) {
    require_fit(whole, part);
    HostTensor shard(part.shape, whole.dtype());
    const std::int64_t bytes = bytes_of(whole.dtype());
    each_run(part, [&](std::int64_t at, std::int64_t from, std::int64_t elements) {
        std::memcpy(shard.data() + at * bytes, whole.data() + from * bytes,
                    static_cast<std::size_t>(elements * bytes));
    });
    return shard;
}

void put_shard(HostTensor& whole, const HostTensor& shard, const Part& part) {
    require_fit(whole, part);
    require(are_same_matrix(shard.shape(), part.shape) && shard.dtype() == whole.dtype(),
            "a shard of shape {} and type {} was put into a whole, whose part has shape "
            "{} and type {}",
            shard.shape(), name_of(shard.dtype()), part.shape, name_of(whole.dtype()));
    const std::int64_t bytes = bytes_of(whole.dtype());
    each_run(part, [&](std::int64_t at, std::int64_t from, std::int64_t elements) {
        std::memcpy(whole.data() + from * bytes, shard.data() + at * bytes,
                    static_cast<std::size_t>(elements * bytes));
    });
}

}  // namespace lockstep
