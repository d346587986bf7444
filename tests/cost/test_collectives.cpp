#include <cmath>
#include <numeric>

#include "src/cost/collectives.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

TEST_CASE("the algorithms' times are the textbook's", "[cost]") {
    const LinkSpec link{2e-6, 1e9};
    constexpr std::int64_t kBytes = 1 << 20;
    const double s = static_cast<double>(kBytes) / 1e9;
    for (const int n : {2, 4, 8, 64}) {
        const double steps = std::log2(n);
        CHECK(std::abs(ring_all_reduce_seconds(link, kBytes, n) -
                       (2 * (n - 1) * 2e-6 + 2.0 * (n - 1) / n * s)) < 1e-12);
        CHECK(std::abs(recursive_doubling_seconds(link, kBytes, n) - steps * (2e-6 + s)) <
              1e-12);
        CHECK(std::abs(halving_doubling_seconds(link, kBytes, n) -
                       (2 * steps * 2e-6 + 2.0 * (n - 1) / n * s)) < 1e-12);
    }
    // Six ranks fold to four and unfold again. This sends two more whole buffers.
    CHECK(std::abs(recursive_doubling_seconds(link, kBytes, 6) - 4 * (2e-6 + s)) < 1e-12);
}

TEST_CASE("doubling is faster for few bytes, the ring for many", "[cost]") {
    const LinkSpec link{1e-6, 10e9};
    CHECK(recursive_doubling_seconds(link, 1024, 64) <
          ring_all_reduce_seconds(link, 1024, 64));
    CHECK(recursive_doubling_seconds(link, 1 << 26, 64) >
          2 * ring_all_reduce_seconds(link, 1 << 26, 64));
}

TEST_CASE("all ranks together send as much as they receive", "[cost]") {
    for (std::size_t i = 0; i < kVerbs; ++i) {
        const auto verb = static_cast<Verb>(i);
        if (is_point_to_point(verb)) continue;
        for (int n = 1; n <= 9; ++n) {
            for (int root = 0; root < n; ++root) {
                CollectiveTraffic sum;
                for (int rank = 0; rank < n; ++rank) {
                    const CollectiveTraffic t =
                        collective_traffic({verb, 17, 4, n, root}, rank);
                    sum.messages_sent += t.messages_sent;
                    sum.messages_received += t.messages_received;
                    sum.bytes_sent += t.bytes_sent;
                    sum.bytes_received += t.bytes_received;
                }
                INFO(name_of(verb) << " over " << n << ", root " << root);
                CHECK(sum.messages_sent == sum.messages_received);
                CHECK(sum.bytes_sent == sum.bytes_received);
            }
        }
    }
}

TEST_CASE("one call for all members gives each member's own share", "[cost]") {
    ClusterSpec spec = load_cluster("classroom");
    spec.devices_per_node = 3;
    const auto same_node = [&](int a, int b) { return spec.same_node(a, b); };
    const std::vector<int> ranks{0, 7, 2, 1, 11, 6, 30};  // ranks per node: 3, 2, 1, 1
    for (int n = 1; n <= static_cast<int>(ranks.size()); ++n) {
        const std::vector<int> members(ranks.begin(), ranks.begin() + n);
        for (std::size_t verb = 0; verb < kVerbs; ++verb) {
            const CollectiveCall call{static_cast<Verb>(verb), 17, 4, n, n - 1};
            const std::vector<TrafficByLink> shares =
                collective_shares(call, members, spec);
            for (int member = 0; member < n; ++member) {
                INFO(name_of(call.verb) << " over " << n << ", member " << member);
                CHECK(shares.at(member) ==
                      collective_share(call, member, members, same_node));
            }
        }
    }
}

TEST_CASE("a ring over two nodes keeps step with its slowest link", "[cost]") {
    const ClusterSpec spec = load_cluster("classroom");
    std::vector<int> members(16);
    std::iota(members.begin(), members.end(), 0);
    const CollectiveCall call{Verb::all_reduce, 16'000, 4, 16};
    CHECK(collective_time(call, spec, members) ==
          std::int64_t{2} * 15 * message_time(spec.between, 4000));
    members.resize(8);
    const CollectiveCall inside{Verb::all_reduce, 8'000, 4, 8};
    CHECK(collective_time(inside, spec, members) ==
          std::int64_t{2} * 7 * message_time(spec.inside, 4000));
}

}  // namespace lockstep::test
