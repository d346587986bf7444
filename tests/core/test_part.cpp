#include <vector>

#include "src/core/part.hpp"
#include "tests/catch.hpp"

namespace lockstep {

namespace {

HostTensor counted(Shape shape) {
    HostTensor tensor(shape, DType::f64);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, static_cast<double>(i + 1));
    return tensor;
}

void check_part_of_part(const HostTensor& whole, const Part& outer, const Part& inner) {
    const Part both = part_of_part(outer, inner);
    CHECK(is_sound(both));
    CHECK(shard_of(whole, both) == shard_of(shard_of(whole, outer), inner));
}

}  // namespace

TEST_CASE("Shards put together are the whole", "[core]") {
    const HostTensor whole = counted({6, 4});
    HostTensor again({6, 4}, DType::f64);
    const Part parts[] = {column_part({6, 4}, 0, 2), column_part({6, 4}, 2, 2)};
    for (const Part& part : parts)
        put_shard(again, shard_of(whole, part), part);
    CHECK(again == whole);

    HostTensor stacked({6, 4}, DType::f64);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const Part part{{6, 4}, {3, 4}, {{0, rank, 1}, {1, 2 + 2 * rank, 2}}, 0};
        put_shard(stacked, shard_of(whole, part), part);
    }
    CHECK(stacked == whole);

    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 3}, Shape{2, 3, 4}}) {
        CHECK(holds_all(whole_part(shape)));
        CHECK(shard_of(counted(shape), whole_part(shape)) == counted(shape));
    }
}

TEST_CASE("A part of a part is a part of the whole", "[core]") {
    const HostTensor whole = counted({8, 6});
    for (const Part& outer :
         {whole_part({8, 6}), row_part({8, 6}, 2, 5), column_part({8, 6}, 2, 3),
          row_part({8, 6}, 5, 6), stacked_part({8, 6}, {4, 4}, 2, 1),
          stacked_part({8, 6}, {5, 3}, 2, 1), flat_part({8, 6}, 7, 23),
          flat_part({8, 6}, 40, 20)}) {
        for (const Part& inner :
             {whole_part(outer.shape), row_part(outer.shape, 1, 2),
              row_part(outer.shape, 2, 5), flat_part(outer.shape, 3, 9),
              flat_part(outer.shape, outer.shape.elements() - 2, 5)})
            check_part_of_part(whole, outer, inner);
        if (outer.shape.dimensions() == 2)
            check_part_of_part(whole, outer, column_part(outer.shape, 1, 2));
    }
}

TEST_CASE("A part that names missing elements is not sound", "[core]") {
    for (const Part& part :
         {whole_part({6, 4}), whole_part({}), row_part({7, 2}, 6, 3),
          row_part({7, 2}, 9, 3), column_part({6, 4}, 2, 2),
          stacked_part({8, 6}, {4, 4}, 3, 2), flat_part({6, 4}, 23, 4)})
        CHECK(is_sound(part));
    CHECK_FALSE(is_sound({{6, 4}, {4}, {{0, 21, 4}}, 0, true}));
    CHECK_FALSE(is_sound(column_part({6, 4}, 3, 2)));
    CHECK_FALSE(is_sound(column_part({6, 4}, -1, 2)));
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, 5, 2}}, 0}));  // outside the whole
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{1, 0, 2}}, 0}));  // outside the shard
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, -1, 2}}, 0}));
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, 0, -1}}, 0}));
}

namespace {

/// Returns the elements of the whole that a part names, one by one, in the shard's order.
std::vector<std::int64_t> named(const Part& part) {
    std::vector<std::int64_t> elements;
    each_run(part, [&](std::int64_t, std::int64_t from, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i)
            elements.push_back(from + i);
    });
    return elements;
}

std::vector<std::int64_t> named(const std::vector<Stretches>& stretches) {
    std::vector<std::int64_t> elements;
    for (const Stretches& each : stretches)
        for (std::int64_t time = 0; time < each.times; ++time)
            for (std::int64_t i = 0; i < each.count; ++i)
                elements.push_back(each.from + time * each.apart + i);
    return elements;
}

}  // namespace

TEST_CASE("Stretches name the elements of a part, in the part's order", "[core]") {
    const Shape whole{16, 6};
    const std::vector<Part> outers{
        whole_part(whole),
        row_part(whole, 3, 7),
        row_part(whole, 12, 7),
        column_part(whole, 2, 3),
        column_part(whole, 0, 1),
        stacked_part(whole, {8, 4, 4}, 2, 1),
        stacked_part(whole, {9, 7}, 3, 2),
        stacked_part(whole, {8, 4, 4}, 4, 3, {8, 2, 2}),
        flat_part(whole, 7, 41),
        flat_part(whole, 90, 20),
        row_part(whole, 16, 2),
        {whole, {8, 6}, {{0, 0, 2}, {2, 4, 2}, {4, 10, 2}, {6, 14, 2}}, 0}};
    for (const Part& outer : outers) {
        CHECK(named(stretches_of(outer)) == named(outer));
        CHECK(elements_of(outer) == static_cast<std::int64_t>(named(outer).size()));
        for (std::int64_t from = 0; from < outer.shape.elements(); from += 5)
            for (const std::int64_t count : {1, 2, 9, 30}) {
                const Part part =
                    part_of_part(outer, flat_part(outer.shape, from, count));
                CHECK(named(stretches_of(part)) == named(part));
            }
    }
    // A ZeRO share of a tensor-parallel rank's columns needs few stretches.
    const Part columns = column_part({4096, 64}, 16, 16);
    const Part share = part_of_part(columns, flat_part(columns.shape, 1600, 3200));
    CHECK(stretches_of(columns) == std::vector<Stretches>{{16, 16, 4096, 64}});
    CHECK(stretches_of(share) == std::vector<Stretches>{{16 + 6400, 16, 200, 64}});
}

TEST_CASE("A part is described in words", "[core]") {
    const Shape whole{192, 64};
    CHECK(text_of(whole_part(whole)) == "all");
    CHECK(text_of(flat_part(whole, 0, whole.elements())) == "all");
    CHECK(text_of(row_part(whole, 32, 32)) == "rows 32–63");
    CHECK(text_of(row_part(whole, 5, 1)) == "row 5");
    CHECK(text_of(row_part({65, 64}, 33, 33)) == "rows 33–64, 1 row of padding");
    CHECK(text_of(row_part({65, 64}, 60, 10)) == "rows 60–64, 5 rows of padding");
    CHECK(text_of(row_part({65}, 60, 10)) == "elements 60–64, 5 elements of padding");
    CHECK(text_of(column_part(whole, 32, 16)) == "columns 32–47");
    CHECK(text_of(column_part(whole, 3, 1)) == "column 3");
    CHECK(text_of(stacked_part(whole, {64, 64, 64}, 2, 1)) ==
          "rows 32–63, 96–127, 160–191");
    CHECK(text_of(stacked_part(whole, {64, 64, 64}, 1, 0)) == "all");
    CHECK(text_of(stacked_part({192}, {64, 64, 64}, 2, 0)) ==
          "elements 0–31, 64–95, 128–159");
    CHECK(text_of(stacked_part({64, 2}, {8, 8, 8, 8, 8, 8, 8, 8}, 4, 1)) ==
          "rows 2–3, 10–11, 18–19, …, 58–59 (8 stretches)");
    CHECK(text_of(stacked_part({32, 2}, {8, 8, 8, 8}, 4, 1)) ==
          "rows 2–3, 10–11, 18–19, 26–27");
    CHECK(text_of(flat_part(whole, 64, 128)) == "rows 1–2");
    CHECK(text_of(flat_part(whole, 65, 128)) == "elements 65–192");
    CHECK(text_of(flat_part({64}, 60, 8)) == "elements 60–63, 4 elements of padding");
    CHECK(text_of(row_part(whole, 192, 4)) == "padding alone");
    CHECK(text_of(row_part(whole, 192, 0)) == "nothing");
    const Part columns = column_part(whole, 16, 16);
    CHECK(text_of(part_of_part(columns, row_part(columns.shape, 8, 4))) ==
          "columns 16–31 of rows 8–11");
    CHECK(text_of(part_of_part(columns, flat_part(columns.shape, 128, 64))) ==
          "columns 16–31 of rows 8–11");
    CHECK(text_of(part_of_part(columns, flat_part(columns.shape, 120, 24))) ==
          "elements 472–479, 528–543");
    CHECK(text_of(whole_part({})) == "all");
}

}  // namespace lockstep
