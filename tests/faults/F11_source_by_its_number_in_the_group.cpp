// F11: tensor groups hand on requests from their first rank. The source is known by its
// number in the world, but each rank compares its number in the group with it. So in the
// second group nobody is the source (lightseekorg/tokenspeed#786).
//
// finds: F11
// check: cheap
// ranks: 8
// parties: 4
// says: rank 4 receives from itself

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"

namespace {

void hand_on(Rank& rank, int me, int source, const std::vector<int>& members,
             const Tensor& ids) {
    if (me != source) return rank.world().recv(ids, source).wait();  // line: recv
    for (const int to : members)
        if (to != rank.index()) rank.world().send(ids, to).wait();
}

}  // namespace

void program(Rank& rank) {
    Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 4}});
    const int me = mesh.coordinate("tp");  // twin: const int me = rank.index();
    const int first = 4 * mesh.coordinate("dp");
    const Tensor ids = rank.device().zeros({8}, DType::i32);
    hand_on(rank, me, first, {first, first + 1, first + 2, first + 3}, ids);
}
