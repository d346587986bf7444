#include "sim/cluster.hpp"
#include "tests/catch.hpp"
#include "tests/comm/comm_contract.hpp"

namespace lockstep::test {

namespace {

std::unique_ptr<Cluster> make(int ranks) {
    return sim::make_cluster(ranks);
}

template <typename Contract>
void for_all_sizes(Contract contract) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 9})
        for (const std::int64_t count :
             {std::int64_t{0}, std::int64_t{1}, std::int64_t{13}})
            for (const DType dtype : {DType::f32, DType::f64, DType::i32})
                contract(make, ranks, count, dtype);
}

}  // namespace

TEST_CASE("an all-reduce leaves the reduction on every rank", "[sim][comm]") {
    for_all_sizes(check_all_reduce);
}
TEST_CASE("an all-gather leaves every rank's block on every rank", "[sim][comm]") {
    for_all_sizes(check_all_gather);
}
TEST_CASE("a reduce-scatter leaves each rank its block of the sum", "[sim][comm]") {
    for_all_sizes(check_reduce_scatter);
}
TEST_CASE("rooted collectives move to and from any root", "[sim][comm]") {
    for_all_sizes(check_rooted);
}
TEST_CASE("an all-to-all transposes blocks and ranks", "[sim][comm]") {
    for_all_sizes(check_all_to_all);
}
TEST_CASE("sends and recvs meet, in groups and one by one", "[sim][comm]") {
    for_all_sizes(check_messages);
}
TEST_CASE("a group's operations progress together, in order", "[sim][comm]") {
    for_all_sizes(check_groups);
}
TEST_CASE("a split makes communicators by colour and key", "[sim][comm]") {
    for_all_sizes(check_split);
}

}  // namespace lockstep::test
