#include "src/comm/mesh.hpp"
#include "tests/catch.hpp"
#include "tests/sim/watched.hpp"

// Ranks disagree about a group (F06) or about split sizes (F08), or misuse groups of
// operations (F15). Correct programs that look similar pass.

namespace lockstep::test {

namespace {

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

}  // namespace

TEST_CASE("groups of different names and sizes may be made in one split", "[sim]") {
    correct(5, [](Rank& rank) {
        const bool actor = rank.index() < 2;
        const auto mine =
            rank.world().split(actor ? 0 : 1, 0, actor ? "actor" : "critic");
        mine->all_reduce(floats(rank, 4)).wait();
        const auto some = rank.world().split(
            rank.index() == 4 ? Communicator::kNoColor : 7, -rank.index(), "some");
        if (some) some->barrier().wait();
    });
}

TEST_CASE("a subgroup of a subgroup, and of one rank", "[sim]") {
    correct(4, [](Rank& rank) {
        const auto three = rank.world().subgroup({3, 1, 0}, "three");
        const auto one = rank.world().subgroup({2}, "one");
        CHECK((one != nullptr) == (rank.index() == 2));
        if (!three) return;
        const auto pair = three->subgroup({2, 1}, "pair");  // ranks 0 and 1 of the run
        CHECK((pair != nullptr) == (rank.index() < 2));
        if (pair) pair->all_reduce(floats(rank, 3)).wait();
    });
}

TEST_CASE("F06: subgroups of one list in two orders", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const std::vector<int> list =
            rank.index() == 2 ? std::vector<int>{2, 1, 0} : std::vector<int>{0, 1, 2};
        (void)rank.world().subgroup(list, "tp");
    });
    CHECK(found.fault == "F06");
    says(found,
         "rank 2 calls subgroup(tp, of ranks 2, 1, 0) at "
         "tests/sim/test_group_making.cpp:");
    says(found, "but ranks 0–1, 3 call subgroup(tp, of ranks 0–2) at ");
}

TEST_CASE("F06: one rank splits where the others make a subgroup", "[sim][errors]") {
    const Diagnosis found = fault_of(3, [](Rank& rank) {
        if (rank.index() == 1)
            (void)rank.world().split(0, 0, "tp");
        else
            (void)rank.world().subgroup({0, 1, 2}, "tp");
    });
    CHECK(found.fault == "F06");
    says(found, "rank 1 calls split(tp, colour 0)");
}

TEST_CASE("F06: meshes with axes in another order", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        std::vector<Mesh::Axis> axes{{"dp", 2}, {"tp", 2}};
        if (rank.index() == 3) std::swap(axes[0], axes[1]);
        const Mesh mesh(rank.world(), axes);
    });
    CHECK(found.fault == "F06");
    says(found, "rank 3 makes the mesh tp 2 x dp 2 at");
    says(found, "but ranks 0–2 make the mesh dp 2 x tp 2 at");
    says(found, "the axes are in another order: tp instead of dp");
}

TEST_CASE("F06: a mesh in another order is found at its first axis", "[sim][errors]") {
    // The two swapped axes have the same length. So each line has the members that its
    // ranks expect, but belongs to the other axis.
    const Diagnosis found = fault_of(8, [](Rank& rank) {
        std::vector<Mesh::Axis> axes{{"pp", 2}, {"ep", 1}, {"dp", 2}, {"tp", 2}};
        if (rank.index() == 3) std::swap(axes[2], axes[3]);
        const Mesh mesh(rank.world(), axes);
    });
    CHECK(found.fault == "F06");
    CHECK(found.sequence == 0);
    says(found, "rank 3 makes the mesh pp 2 x tp 2 x dp 2 at");
    says(found, "tp instead of dp");
}

TEST_CASE("F06: meshes of other axes or sizes", "[sim][errors]") {
    const auto found_with = [](const std::vector<Mesh::Axis>& of_rank_1) {
        return fault_of(4, [&](Rank& rank) {
            const std::vector<Mesh::Axis> axes{{"dp", 2}, {"tp", 2}};
            const Mesh mesh(rank.world(), rank.index() == 1 ? of_rank_1 : axes);
        });
    };
    says(found_with({{"dp", 4}}), "the axes differ");
    says(found_with({{"dp", 4}, {"tp", 1}}), "rank 1 makes the mesh dp 4 at");
    says(found_with({{"dp", 2}, {"cp", 2}}), "the axes differ");
    // Each axis makes one split, even an axis with one rank.
    says(found_with({{"dp", 2}, {"tp", 2}, {"cp", 1}}),
         "rank 1 makes the mesh dp 2 x tp 2 x cp 1 at");
}

TEST_CASE("F06: meshes that only look equal", "[sim][errors]") {
    const auto found_with = [](const std::vector<std::string>& of_rank_1) {
        return fault_of(2, [&](Rank& rank) {
            const std::vector<std::string> usual{"data parallel 2"};
            (void)rank.world().split(
                {0, 0, "dp", {0, 1}, false, rank.index() == 1 ? of_rank_1 : usual});
        });
    };
    says(found_with({"data parallel 2", "t p 1"}), "the axes differ");
    says(found_with({"x"}), "rank 1 makes the mesh x at");
    says(found_with({""}), "the axes differ");
    says(found_with({"data", "parallel 2"}), "the axes differ");
    const Diagnosis turned = fault_of(6, [](Rank& rank) {
        std::vector<Mesh::Axis> axes{{"data parallel", 2}, {"t p", 3}};
        if (rank.index() == 5) std::swap(axes[0], axes[1]);
        const Mesh mesh(rank.world(), axes);
    });
    says(turned, "another order: t p instead of data parallel");
}

TEST_CASE("F06: one group of three that is made with a wrong colour", "[sim][errors]") {
    const Diagnosis found = fault_of(6, [](Rank& rank) {
        const int first = rank.index() / 3 * 3;
        SplitRequest request{
            rank.index() == 4 ? 0 : first, rank.index(), "tp", {}, false};
        request.members = {first, first + 1, first + 2};
        (void)rank.world().split(request);
    });
    CHECK(found.fault == "F06");
    says(found, "rank 4");
}

TEST_CASE("F08: an all_to_all_v with itself is compared too", "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        const bool wrong = rank.index() == 1;
        rank.world()
            .all_to_all_v(
                floats(rank, 4),
                wrong ? std::vector<std::int64_t>{1, 3} : std::vector<std::int64_t>{2, 2},
                floats(rank, 4), {2, 2})
            .wait();
    });
    CHECK(found.fault == "F08");
    says(found, "rank 1");
    says(found, "expects from ranks 0, 1, … of world in elements: 1, 3");
}

TEST_CASE("an all_to_all_v moves the bytes of all_to_all when its parts are equal",
          "[sim]") {
    const auto run = [](bool equal) {
        return sim::make_cluster(4, "classroom")->run([=](Rank& rank) {
            const Tensor in = floats(rank, 400);
            const Tensor out = floats(rank, 400);
            const std::vector<std::int64_t> counts(4, 100);
            if (equal)
                rank.world().all_to_all(out, in).wait();
            else
                rank.world().all_to_all_v(out, counts, in, counts).wait();
        });
    };
    const RunReport built_in = run(true);
    const RunReport parts = run(false);
    for (std::size_t r = 0; r < 4; ++r) {
        CHECK(parts.ranks[r].bytes_sent() == 3 * 100 * 4);
        CHECK(parts.ranks[r].bytes_sent() == built_in.ranks[r].bytes_sent());
    }
    CHECK(parts.makespan() == built_in.makespan());
}

TEST_CASE("F15: a split inside a group", "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        Group group = rank.world().group();
        group.all_reduce(floats(rank, 4));
        const auto pair = rank.world().split(0, 0, "pair");
        group.start().wait();
    });
    CHECK(found.fault == "F15");
    says(found, "rank 0 calls split() of world at ");
    says(found, "inside its group of world that was begun at ");
}

TEST_CASE("F15: a cancelled group, and a later use of its communicator",
          "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        rank.world().group().all_reduce(floats(rank, 4));
        rank.world().barrier().wait();
    });
    CHECK(found.fault == "F15");
    says(found, "rank 0 calls barrier() of world");
}

TEST_CASE("F15: a group of a destroyed communicator", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const auto pair = rank.world().split(rank.index() / 2, 0, "pair");
        if (rank.index() == 3) pair->group().all_reduce(floats(rank, 4));
    });
    CHECK(found.fault == "F15");
    says(found, "rank 3 began a group of pair at ");
    says(found, "its 1 operation was never launched");
}

TEST_CASE("an empty group, and one that an exception cancels, are no mistakes", "[sim]") {
    correct(2, [](Rank& rank) {
        rank.world().group().start().wait();
        try {
            Group group = rank.world().group();
            throw std::runtime_error("a change of mind");
        } catch (const std::runtime_error&) {
        }
        rank.world().barrier().wait();
    });
}

}  // namespace lockstep::test
