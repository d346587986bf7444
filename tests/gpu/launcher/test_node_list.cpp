#include "gpu/launcher/placement.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::gpu;

TEST_CASE("The first machine of a node list is found") {
    const auto first = [](const char* list) { return first_host(list, "LIST"); };
    CHECK(first("login1") == "login1");
    CHECK(first("login1,gpu[01-04]") == "login1");
    CHECK(first("gpu[01-04,07],login1") == "gpu01");
    CHECK(first("gpu[7,01-04]") == "gpu7");
    CHECK(first("gpu[001-104]-ib") == "gpu001-ib");
    CHECK(first("rack[2-3]node[10-12]") == "rack2node10");
    CHECK(first("a-b-1,c") == "a-b-1");
    for (const char* wrong : {"", ",", "gpu[", "gpu[1", "gpu]", "gpu 1", "(null)]"})
        CHECK_THROWS_AS(first(wrong), UsageError);
    CHECK_THROWS_WITH(first("gpu["),
                      "LIST is \"gpu[\"; expected names of machines, as in "
                      "gpu[01-04,07],login1");
}

TEST_CASE("The tasks of each machine are counted") {
    const auto tasks = [](const char* list, int node) {
        return tasks_of_node(list, node, "LIST");
    };
    CHECK(tasks("4", 0) == 4);
    CHECK(tasks("4(x2),3", 0) == 4);
    CHECK(tasks("4(x2),3", 1) == 4);
    CHECK(tasks("4(x2),3", 2) == 3);
    CHECK(tasks("1,2(x3),12", 4) == 12);
    CHECK(tasks("1(x5),2(x2147483647)", 5) == 2);
    CHECK_THROWS_WITH(tasks("4(x2),3", 3),
                      "LIST is \"4(x2),3\"; expected more than 3 "
                      "machines, since SLURM_NODEID is 3");
    for (const char* wrong :
         {"", "x", "0", "4(x)", "4(x0)", "4(2)", "4(x2", "4,,3", "-4"})
        CHECK_THROWS_AS(tasks(wrong, 2), UsageError);
}

TEST_CASE("Addresses are split into host and port") {
    const auto read = [](const char* text) { return parse_address(text, "HERE"); };
    CHECK(read("unix:lockstep-1").unix_name == "lockstep-1");
    CHECK(read("node01:29500").host == "node01");
    CHECK(read("node01:29500").port == 29500);
    CHECK(read("[fd00::1]:80").host == "fd00::1");
    for (const char* same :
         {"unix:lockstep-1", "node01:29500", "10.0.0.1:1", "[fd00::1]:80"})
        CHECK(read(same).text() == same);
    for (const char* wrong : {"", "unix:", "node01", ":29500", "node01:", "node01:0",
                              "node01:65536", "node01:http", "fd00::1:80", "[]:80"})
        CHECK_THROWS_AS(read(wrong), UsageError);
    CHECK_THROWS_AS(read(("unix:" + std::string(101, 'x')).c_str()), UsageError);
    CHECK_THROWS_WITH(read("node01"),
                      "HERE: \"node01\" is no address to meet at; expected "
                      "host:port, as in node01:29500");
}
