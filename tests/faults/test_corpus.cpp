// In every world the checker must find the mistake of every program of the corpus, with
// class, ranks and lines. It must find no mistake in the twin, which differs in one line.

#include <algorithm>
#include <set>
#include <sstream>

#include "src/run/fault_text.hpp"
#include "tests/catch.hpp"
#include "tests/faults/corpus.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

using RankSets = std::multiset<std::vector<int>>;

/// Returns the sets of ranks: for 4 ranks, "2 | rest" gives {2}, {0, 1, 3}.
RankSets parties_of(const std::string& text, int ranks) {
    std::vector<int> rest;
    for (int rank = 0; rank < ranks; ++rank)
        rest.push_back(rank);
    const std::vector<int> all = rest;
    std::vector<std::vector<std::string>> sets{{}};
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (word == "|")
            sets.emplace_back();
        else
            sets.back().push_back(word);
    }
    for (const auto& set : sets)
        for (const std::string& word : set)
            if (word != "rest" && word != "all") std::erase(rest, std::stoi(word));
    RankSets parties;
    for (const auto& set : sets) {
        std::vector<int> members;
        for (const std::string& word : set) {
            if (word == "all" || word == "rest")
                members = word == "all" ? all : rest;
            else
                members.push_back(std::stoi(word));
        }
        std::sort(members.begin(), members.end());
        parties.insert(members);
    }
    return parties;
}

RankSets parties_of(const Diagnosis& diagnosis) {
    RankSets parties;
    for (Diagnosis::Party party : diagnosis.parties) {
        std::sort(party.ranks.begin(), party.ranks.end());
        parties.insert(party.ranks);
    }
    return parties;
}

std::unique_ptr<Cluster> cluster_for(const FaultProgram& program, World world,
                                     int ranks) {
    sim::ClusterOptions options = options_of(world, ranks);
    if (program.memory_bytes > 0) options.spec.memory_bytes = program.memory_bytes;
    options.reference = program.reference;
    return sim::make_cluster(std::move(options));
}

/// Returns the worlds that can run a program with this number of ranks.
std::vector<World> worlds_for(int ranks, sim::CheckLevel check) {
    std::vector<World> worlds = all_worlds();
    std::erase_if(worlds, [&](const World& world) {
        return ranks > 16 && world.executor == sim::ExecutorKind::threads;
    });
    for (World& world : worlds)
        world.check = check;
    return worlds;
}

Diagnosis found_in(const FaultProgram& program, const World& world, int ranks) {
    try {
        cluster_for(program, world, ranks)->run(program.mistaken);
    } catch (const FaultError& fault) {
        return fault.diagnosis();
    }
    FAIL(program.name << " was found correct");
    return {};
}

void check_found(const FaultProgram& program, int ranks) {
    std::optional<std::string> first;
    for (const World& world : worlds_for(ranks, program.check)) {
        const Diagnosis found = found_in(program, world, ranks);
        if (!first) {
            first = found.text();
            INFO(*first);
            CHECK(found.fault == program.fault);
            CHECK((parties_of(found) == parties_of(program.parties, ranks)));
            CHECK(found.sentence.find(program.says) != std::string::npos);
            for (const Mark& mark : program.marks) {
                INFO(mark.name << " at " << mark.place);
                const std::size_t place = first->find(mark.place);
                CHECK(place != std::string::npos);
            }
        }
        CHECK(found.text() == *first);
    }
    if (program.check == sim::CheckLevel::full) return;
    World full;
    full.check = sim::CheckLevel::full;
    CHECK(found_in(program, full, ranks).fault == program.fault);
}

void check_correct(const FaultProgram& program, int ranks) {
    for (const World& world : worlds_for(ranks, sim::CheckLevel::full))
        CHECK_NOTHROW(cluster_for(program, world, ranks)->run(program.twin));
    CHECK_NOTHROW(cluster_for(program, World{}, ranks)->run(program.twin));
}

}  // namespace

TEST_CASE("each mistake of the corpus is found", "[sim][faults]") {
    for (const FaultProgram& program : fault_corpus()) {
        for (const int ranks : program.ranks) {
            DYNAMIC_SECTION(program.name << " on " << ranks << " ranks") {
                check_found(program, ranks);
            }
        }
    }
}

TEST_CASE("the twin of each mistake is correct", "[sim][faults]") {
    for (const FaultProgram& program : fault_corpus()) {
        for (const int ranks : program.ranks) {
            DYNAMIC_SECTION(program.name << " on " << ranks << " ranks") {
                check_correct(program, ranks);
            }
        }
    }
}

TEST_CASE("each class of mistakes is in the corpus at least twice", "[faults]") {
    const std::vector<FaultProgram> corpus = fault_corpus();
    for (const FaultClass& fault : fault_classes()) {
        const auto programs = std::count_if(
            corpus.begin(), corpus.end(),
            [&](const FaultProgram& program) { return program.fault == fault.id; });
        INFO(fault.id);
        CHECK(programs >= 2);
    }
}

}  // namespace lockstep::test
