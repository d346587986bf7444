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

TEST_CASE("A part of a part is the part of the whole that both say", "[core]") {
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

TEST_CASE("A part that names what is not there is not sound", "[core]") {
    for (const Part& part :
         {whole_part({6, 4}), whole_part({}), row_part({7, 2}, 6, 3),
          row_part({7, 2}, 9, 3), column_part({6, 4}, 2, 2),
          stacked_part({8, 6}, {4, 4}, 3, 2), flat_part({6, 4}, 23, 4)})
        CHECK(is_sound(part));
    CHECK_FALSE(is_sound({{6, 4}, {4}, {{0, 21, 4}}, 0, true}));
    CHECK_FALSE(is_sound(column_part({6, 4}, 3, 2)));
    CHECK_FALSE(is_sound(column_part({6, 4}, -1, 2)));
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, 5, 2}}, 0}));  // of the whole
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{1, 0, 2}}, 0}));  // of the shard
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, -1, 2}}, 0}));
    CHECK_FALSE(is_sound({{6, 4}, {2, 4}, {{0, 0, -1}}, 0}));
}

}  // namespace lockstep
