#include <new>
#include <stdexcept>

#include "src/comm/mesh.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/sim/worlds.hpp"

// Makes each mistake on purpose. The diagnosis must name the class, the ranks and both
// lines.

namespace lockstep::test {

namespace {

/// Line numbers of calls. Each variable is set on the line before its call.
int here = 0;
int there = 0;

std::string line(int number) {
    return "tests/sim/test_faults.cpp:" + std::to_string(number);
}

bool says(const Diagnosis& diagnosis, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        INFO("'" << word << "' in: " << diagnosis.sentence);
        CHECK(diagnosis.sentence.find(word) != std::string::npos);
    }
    return true;
}

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

}  // namespace

TEST_CASE("F01: two collectives in another order on one rank", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 8);
            if (rank.index() == 2) {
                there = __LINE__ + 1;
                rank.world().broadcast(x, 0).wait();
                rank.world().all_reduce(x).wait();
            } else {
                here = __LINE__ + 1;
                rank.world().all_reduce(x).wait();
                rank.world().broadcast(x, 0).wait();
            }
        });
        CHECK(found.fault == "F01");
        CHECK(found.parties.size() == 2);
        CHECK(found.parties[1].ranks == std::vector<int>{2});
        CHECK(found.parties[0].ranks.size() == static_cast<std::size_t>(ranks - 1));
        says(found,
             {"rank 2", "broadcast", line(there), "all_reduce", line(here), "world"});
    }
}

TEST_CASE("F02: one rank passes half as many elements", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, rank.index() == 1 ? 4 : 8);
            here = __LINE__ + 1;
            rank.world().all_reduce(x).wait();
        });
        CHECK(found.fault == "F02");
        CHECK(found.parties[1].ranks == std::vector<int>{1});
        says(found, {"rank 1", "count 4 against 8", line(here)});
    }
}

TEST_CASE("F03: one rank passes another type", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x =
                rank.device().zeros({8}, rank.index() == 3 ? DType::i32 : DType::f32);
            here = __LINE__ + 1;
            rank.world().all_reduce(x).wait();
        });
        CHECK(found.fault == "F03");
        CHECK(found.parties[1].ranks == std::vector<int>{3});
        says(found, {"rank 3", "type i32 against f32", line(here)});
    }
}

TEST_CASE("F03: a send and its recv differ in type", "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        if (rank.index() == 0) {
            here = __LINE__ + 1;
            rank.world().send(floats(rank, 8), 1).wait();
        } else {
            const Tensor x = rank.device().zeros({8}, DType::i32);
            there = __LINE__ + 1;
            rank.world().recv(x, 0).wait();
        }
    });
    CHECK(found.fault == "F03");
    says(found, {"rank 0 sends", "rank 1 receives", line(here), line(there)});
}

TEST_CASE("F04: one rank asks for another reduction", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 8);
            if (rank.index() == 0) {
                there = __LINE__ + 1;
                rank.world().all_reduce(x, Reduction::mean).wait();
            } else {
                here = __LINE__ + 1;
                rank.world().all_reduce(x, Reduction::sum).wait();
            }
        });
        CHECK(found.fault == "F04");
        CHECK(found.parties[1].ranks == std::vector<int>{0});
        says(found, {"rank 0", "reduction mean against sum", line(here), line(there)});
    }
}

TEST_CASE("F05: ranks name different roots", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 8);
            const int root = rank.index() == 3 ? 1 : 0;
            here = __LINE__ + 1;
            rank.world().broadcast(x, root).wait();
        });
        CHECK(found.fault == "F05");
        CHECK(found.parties[1].ranks == std::vector<int>{3});
        says(found, {"rank 3", "root 1 against 0", line(here)});
    }
}

TEST_CASE("F07: a rank returns early", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 8);
            there = __LINE__ + 1;
            rank.world().all_reduce(x).wait();
            if (rank.index() == 1) return;
            here = __LINE__ + 1;
            rank.world().all_reduce(x).wait();
        });
        CHECK(found.fault == "F07");
        CHECK(found.sequence == 1);
        says(found, {"rank 1, which has ended", line(here), line(there)});
    }
}

TEST_CASE("F09: a send and its recv differ in size", "[sim][errors]") {
    for (const int ranks : {2, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            if (rank.index() == 0) {
                here = __LINE__ + 1;
                rank.world().send(floats(rank, 8), 1).wait();
            }
            if (rank.index() == 1) {
                there = __LINE__ + 1;
                rank.world().recv(floats(rank, 4), 0).wait();
            }
            rank.world().barrier().wait();
        });
        CHECK(found.fault == "F09");
        says(found, {"rank 0 sends 8", "rank 1 receives 4", line(here), line(there)});
    }
}

TEST_CASE("F10: a recv whose send never comes", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            if (rank.index() == 1) {
                here = __LINE__ + 1;
                rank.world().recv(floats(rank, 4), 2).wait();
            }
        });
        CHECK(found.fault == "F10");
        says(found, {"rank 1", "from rank 2", line(here), "has ended"});
    }
}

TEST_CASE("F10: a send without a wait is left at the end", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        if (rank.index() != 3) return;
        here = __LINE__ + 1;
        (void)rank.world().send(floats(rank, 4), 0);
    });
    CHECK(found.fault == "F10");
    says(found, {"rank 3", "never met its recv on rank 0", line(here)});
}

TEST_CASE("F07: a collective that not all launched is left at the end", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        if (rank.index() == 3) return;
        here = __LINE__ + 1;
        (void)rank.world().all_reduce(floats(rank, 4));
    });
    CHECK(found.fault == "F07");
    says(found, {"rank 0", "was not called by every rank of world", line(here)});
}

TEST_CASE("F11: all ranks receive first", "[sim][errors]") {
    for (const int ranks : {2, 4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const int n = rank.size();
            const Tensor x = floats(rank, 4);
            here = __LINE__ + 1;
            rank.world().recv(x, (rank.index() + n - 1) % n).wait();
            rank.world().send(x, (rank.index() + 1) % n).wait();
        });
        CHECK(found.fault == "F11");
        std::size_t told = 0;
        for (const auto& party : found.parties)
            told += party.ranks.size();
        CHECK(told == static_cast<std::size_t>(ranks));
        says(found, {"rank 0", "recv", line(here)});
    }
}

TEST_CASE("F11: all ranks send first, which only a buffer would let pass",
          "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        const Tensor x = floats(rank, 4);
        if (rank.index() == 0) {
            here = __LINE__ + 1;
            rank.world().send(x, 1).wait();
            rank.world().recv(x, 1).wait();
        } else {
            there = __LINE__ + 1;
            rank.world().send(x, 0).wait();
            rank.world().recv(x, 0).wait();
        }
    });
    CHECK(found.fault == "F11");
    CHECK(found.parties[0].history.empty());  // the rank did nothing before
    says(found, {line(here), line(there), "to rank 1", "to rank 0"});
}

TEST_CASE("F13: one rank runs a loop one more time", "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 4);
            const int rounds = rank.index() == 2 ? 4 : 3;
            for (int i = 0; i < rounds; ++i) {
                there = __LINE__ + 1;
                rank.world().all_reduce(x).wait();
            }
            here = __LINE__ + 1;
            rank.world().barrier().wait();
        });
        CHECK(found.fault == "F13");
        CHECK(found.parties[1].ranks == std::vector<int>{2});
        says(found, {"rank 2", "all_reduce", line(there), "barrier", line(here)});
    }
}

TEST_CASE("F13: a rank waits for a message while the rest are in a collective",
          "[sim][errors]") {
    for (const int ranks : {4, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 4);
            if (rank.index() == 1) {
                there = __LINE__ + 1;
                rank.world().recv(x, 0).wait();
            }
            here = __LINE__ + 1;
            rank.world().all_reduce(x).wait();
        });
        CHECK(found.fault == "F13");
        says(found, {"rank 1 in recv", line(there), "all_reduce", line(here)});
    }
}

TEST_CASE("F14: a pipeline whose last stage warms up once too often", "[sim][errors]") {
    for (const int ranks : {2, 256}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const auto pipe = rank.world().split(0, rank.index(), "pp");
            const Tensor x = floats(rank, 4);
            const auto forward = [&](int batch) {
                const PhaseScope phase(rank.device(), Phase::forward, batch);
                if (rank.index() == 0) {
                    pipe->send(x, 1).wait();
                } else {
                    there = __LINE__ + 1;
                    pipe->recv(x, 0).wait();
                }
            };
            const auto backward = [&](int batch) {
                const PhaseScope phase(rank.device(), Phase::backward, batch);
                if (rank.index() == 0) {
                    here = __LINE__ + 1;
                    pipe->recv(x, 1).wait();
                } else {
                    pipe->send(x, 0).wait();
                }
            };
            if (rank.index() > 1) return rank.world().barrier().wait();
            // Stage 0 has one warm-up forward. Stage 1 must have none, but wrongly asks
            // for two forwards before its first backward.
            forward(0);
            if (rank.index() == 1) forward(1);
            backward(0);
            if (rank.index() == 0) forward(1);
            backward(1);
        });
        CHECK(found.fault == "F14");
        says(found, {"recv", line(here), line(there), "of pp"});
        CHECK(found.text().find("micro-batch") != std::string::npos);
    }
}

TEST_CASE("the class of a circle of messages does not depend on a name",
          "[sim][errors]") {
    for (const std::string name : {"pp", "pipe", "x", "world"}) {
        const auto group = [&](Rank& rank) {
            return rank.world().split(0, rank.index(), name);
        };
        // One forward and one backward. Then both ranks send at the same time.
        const Diagnosis pipeline = fault_of(2, [&](Rank& rank) {
            const auto stages = group(rank);
            const Tensor x = floats(rank, 4);
            if (rank.index() == 0) stages->send(x, 1).wait();
            if (rank.index() == 1) stages->recv(x, 0).wait();
            stages->send(x, 1 - rank.index()).wait();
            stages->recv(x, 1 - rank.index()).wait();
        });
        CHECK(pipeline.fault == "F14");
        // Neighbours in a ring exchange values, the first time correctly. The second time
        // each rank sends first.
        for (const int ranks : {2, 4}) {
            const Diagnosis ring = fault_of(ranks, [&](Rank& rank) {
                const auto ranks_of_ring = group(rank);
                const int n = rank.size();
                const int right = (rank.index() + 1) % n;
                const int left = (rank.index() + n - 1) % n;
                const Tensor x = floats(rank, 4);
                const Tensor y = floats(rank, 4);
                ranks_of_ring->group().send(x, right).recv(y, left).start().wait();
                ranks_of_ring->send(x, right).wait();
                ranks_of_ring->recv(y, left).wait();
            });
            CHECK(ring.fault == "F11");
        }
    }
}

namespace {

/// All forwards, then all backwards. But stage 2 waits for one forward too many.
void one_forward_too_many(Rank& rank) {
    const Tensor x = floats(rank, 4);
    const int before = rank.index() - 1;
    const int behind = rank.index() + 1;
    const int forwards = rank.index() == 2 ? 4 : 3;
    for (int i = 0; i < forwards; ++i) {
        if (rank.index() > 0) rank.world().recv(x, before).wait();
        if (behind < rank.size()) rank.world().send(x, behind).wait();
    }
    for (int i = 0; i < 3; ++i) {
        if (behind < rank.size()) rank.world().recv(x, behind).wait();
        if (rank.index() > 0) rank.world().send(x, before).wait();
    }
}

}  // namespace

TEST_CASE("F14: stages in the middle of a pipeline that have done equal work",
          "[sim][errors]") {
    for (const int stages : {4, 6})
        CHECK(fault_of(stages, one_forward_too_many).fault == "F14");
}

TEST_CASE("F14: two stages with equal exchanges are distinguished by their phases",
          "[sim][errors]") {
    const auto both_receive = [](Phase of_second) {
        return fault_of(2, [&](Rank& rank) {
            const Tensor x = floats(rank, 4);
            {
                const PhaseScope phase(rank.device(),
                                       rank.index() == 0 ? Phase::backward : of_second);
            }
            rank.world().recv(x, 1 - rank.index()).wait();
            rank.world().send(x, 1 - rank.index()).wait();
        });
    };
    CHECK(both_receive(Phase::forward).fault == "F14");
    CHECK(both_receive(Phase::backward).fault == "F11");
    CHECK(both_receive(Phase::update).fault == "F11");
    // Recomputation runs a forward inside a backward. This leaves the device in the
    // backward phase.
    const Diagnosis nested = fault_of(2, [](Rank& rank) {
        const Tensor x = floats(rank, 4);
        const PhaseScope backward(rank.device(), Phase::backward);
        if (rank.index() == 1) {
            const PhaseScope forward(rank.device(), Phase::forward);
        }
        rank.world().recv(x, 1 - rank.index()).wait();
        rank.world().send(x, 1 - rank.index()).wait();
    });
    CHECK(nested.fault == "F11");
}

TEST_CASE("F11: experts' uneven all-to-alls do not make stages of their ranks",
          "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        const Tensor x = floats(rank, 4);
        const Tensor y = floats(rank, 4);
        const bool first = rank.index() == 0;
        using Counts = std::vector<std::int64_t>;
        // Only rank 0 has rows for the other rank.
        rank.world()
            .all_to_all_v(y.rows(0, first ? 1 : 3), first ? Counts{1, 0} : Counts{2, 1},
                          x.rows(0, first ? 3 : 1), first ? Counts{1, 2} : Counts{0, 1})
            .wait();
        rank.world().recv(x, 1 - rank.index()).wait();
        rank.world().send(x, 1 - rank.index()).wait();
    });
    CHECK(found.fault == "F11");
}

TEST_CASE("F11: a server and one of its workers both receive first", "[sim][errors]") {
    // The server has sent and received more than each worker. Still it is not a pipeline
    // stage.
    for (const int ranks : {4, 64}) {
        const Diagnosis found = fault_of(ranks, [](Rank& rank) {
            const Tensor x = floats(rank, 4);
            for (int worker = 1; worker < rank.size(); ++worker) {
                if (rank.index() == 0) {
                    rank.world().recv(x, worker).wait();
                    rank.world().send(x, worker).wait();
                } else if (rank.index() == worker) {
                    rank.world().send(x, 0).wait();
                    rank.world().recv(x, 0).wait();
                }
            }
            if (rank.index() > 1) return rank.world().barrier().wait();
            rank.world().recv(x, 1 - rank.index()).wait();
            rank.world().send(x, 1 - rank.index()).wait();
        });
        CHECK(found.fault == "F11");
    }
}

TEST_CASE("the first cause is reported when a rank throws", "[sim][errors]") {
    for (const World& world : all_worlds()) {
        const auto run = [&] {
            make_cluster_in(world, 4)->run([](Rank& rank) {
                const Tensor x = floats(rank, 4);
                if (rank.index() == 2) throw std::runtime_error("disk on fire");
                if (rank.index() == 3) (void)x.rows(0, 9);
                rank.world().all_reduce(x).wait();
            });
        };
        CHECK_THROWS_WITH(run(), "rank 2: disk on fire");
    }
}

TEST_CASE("a rank's exception keeps its type, and names the rank if possible",
          "[sim][errors]") {
    struct Mine {
        int number = 0;
    };
    const auto run = [](const Program& fails) {
        sim::make_cluster(3)->run([&](Rank& rank) {
            if (rank.index() == 1) fails(rank);
            rank.world().barrier().wait();
        });
    };
    CHECK_THROWS_AS(run([](Rank&) { throw Mine{7}; }), Mine);
    CHECK_THROWS_AS(run([](Rank&) { throw std::bad_alloc(); }), std::bad_alloc);
    const auto out_of_range = [](Rank&) { throw std::out_of_range("no such row"); };
    CHECK(message_of<std::out_of_range>([&] { run(out_of_range); }) ==
          "rank 1: no such row");
    const auto usage = [](Rank& rank) { (void)floats(rank, 4).rows(0, 9); };
    CHECK(message_of<UsageError>([&] { run(usage); }).starts_with("rank 1: tests/sim/"));
    const auto says_so = [](Rank&) { throw std::runtime_error("rank 1 has no data"); };
    CHECK(message_of<std::runtime_error>([&] { run(says_so); }) == "rank 1 has no data");
}

TEST_CASE("the message of a full device names what fills it", "[sim][errors]") {
    sim::ClusterOptions options;
    options.ranks = 2;
    options.spec = load_cluster("classroom");
    options.spec.memory_bytes = 1000;
    const auto run = [&] {
        sim::make_cluster(options)->run([](Rank& rank) {
            const MemoryScope scope(rank.device(), MemoryCategory::optimizer);
            const Tensor state = rank.device().zeros({200}, DType::f32);
            if (rank.index() == 1) (void)rank.device().zeros({100}, DType::f32);
            rank.world().barrier().wait();
        });
    };
    try {
        run();
        FAIL("it fitted");
    } catch (const std::exception& error) {
        const std::string text = error.what();
        for (const char* word :
             {"rank 1 is out of memory", "400 B", "optimizer", "1 tensor"}) {
            INFO(text);
            CHECK(text.find(word) != std::string::npos);
        }
    }
}

TEST_CASE("F13: a barrier of a plane without some of its ranks", "[sim][errors]") {
    const auto program = [](bool on_first_step, bool all_make_the_plane) {
        return [=](Rank& rank) {
            Mesh mesh(rank.world(), {{"pp", 2}, {"dp", 2}, {"tp", 2}});
            if (all_make_the_plane) mesh.plane({"dp", "tp"});
            const Tensor gradient = rank.device().zeros({4}, DType::f32);
            for (int step = 0; step < 3; ++step) {
                if (step == (on_first_step ? 0 : 2) && mesh.coordinate("dp") == 0)
                    mesh.plane({"dp", "tp"}).barrier().wait();
                mesh["dp"].all_reduce(gradient).wait();
            }
        };
    };
    const Diagnosis later = fault_of(8, program(false, true));
    CHECK(later.fault == "F13");
    says(later, {"ranks 0–1 in barrier() #0 of dp x tp at", "wait for rank 2 in",
                 "all_reduce(sum, 4 x f32) #2 of dp", "which waits for rank 0"});
    REQUIRE(later.parties.size() == 2);
    CHECK(later.parties[0].ranks == std::vector<int>{0, 1});

    // A hang in the first step looks like calls in a different order.
    const Diagnosis first = fault_of(8, program(true, true));
    CHECK(first.fault == "F12");
    CHECK(first.cause.find("if only some ranks make a call, let all ranks make it") !=
          std::string::npos);

    const Diagnosis made = fault_of(8, program(false, false));
    says(made, {"ranks 0–1, 4–5 in split(dp x tp, of ranks 0–3) #3 of world at",
                "all_reduce(sum, 4 x f32) #2 of dp"});
    CHECK(made.cause.find("Make the group before the condition") != std::string::npos);
    CHECK(made.fault == "F13");
}

TEST_CASE("F07: some ranks end without making a plane", "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
        if (rank.index() < 2) mesh.plane({"dp", "tp"});
    });
    CHECK(found.fault == "F07");
    says(found, {"ranks 0–1 wait in split(dp x tp, of ranks 0–3) #2 of world"});
    CHECK(found.cause.find("Make the group before the condition") != std::string::npos);
}

}  // namespace lockstep::test
