#include <filesystem>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/control.hpp"
#include "gpu/launcher/secret.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::gpu;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";

std::string hex(const Proof& proof) {
    std::string digits;
    for (const unsigned char byte :
         std::string_view(reinterpret_cast<const char*>(proof.data()), sizeof proof))
        digits += fmt::format("{:02x}", byte);
    return digits;
}

std::string secret_in(const std::map<std::string, std::string>& variables) {
    return find_secret([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

/// A file that only this user can read, in a new folder.
class SecretFile {
  public:
    explicit SecretFile(const std::string& text)
        : folder_(os::make_temporary_folder()), path_(folder_ / "secret") {
        std::ofstream(path_) << text;
        mode(0600);
    }
    ~SecretFile() { std::filesystem::remove_all(folder_); }
    SecretFile(const SecretFile&) = delete;
    SecretFile& operator=(const SecretFile&) = delete;

    std::string path() const { return path_.string(); }
    void mode(mode_t rights) const { chmod(path_.c_str(), rights); }
    std::string found() const { return secret_in({{"LOCKSTEP_SECRET_FILE", path()}}); }

  private:
    std::filesystem::path folder_;
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("A proof is HMAC-SHA256, as in RFC 4231") {
    CHECK(hex(prove(std::string(20, '\x0b'), "Hi There")) ==
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    CHECK(hex(prove("Jefe", "what do ya want for nothing?")) ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    CHECK(hex(prove(std::string(131, '\xaa'),
                    "Test Using Larger Than Block-Size Key - Hash Key First")) ==
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("Proofs that differ in one bit are not the same") {
    const Proof proof = prove(kSecret, "text");
    CHECK(same(proof, proof));
    for (size_t bit = 0; bit < 256; ++bit) {
        Proof other = proof;
        other[bit / 64] ^= std::uint64_t{1} << bit % 64;
        CHECK_FALSE(same(proof, other));
    }
}

TEST_CASE("Each nonce and each secret is new") {
    CHECK(fresh_nonce() != fresh_nonce());
    CHECK(fresh_secret() != fresh_secret());
    CHECK(secret_in({{"LOCKSTEP_SECRET", fresh_secret()}}).size() == 64);
}

TEST_CASE("A secret comes from the environment, or else from a file") {
    const SecretFile file(kSecret + "\n");
    CHECK(secret_in({}).empty());
    CHECK(file.found() == kSecret);
    CHECK(secret_in({{"LOCKSTEP_SECRET", kSecret + "!"},
                     {"LOCKSTEP_SECRET_FILE", "/nowhere"}}) == kSecret + "!");
    file.mode(0400);
    CHECK(file.found() == kSecret);
}

TEST_CASE("A file that others can read or change is no secret") {
    const SecretFile file(kSecret);
    for (const mode_t rights : {0644, 0640, 0604, 0620, 0602, 0601}) {
        file.mode(rights);
        CHECK_THROWS_WITH(
            file.found(),
            fmt::format("LOCKSTEP_SECRET_FILE: {} can be read or changed by others: run "
                        "chmod 600 {}",
                        file.path(), file.path()));
        CHECK_THROWS_AS(file.found(), UsageError);
    }
}

TEST_CASE("Another user's file is no secret") {
    constexpr uid_t kOther = 12345;
    const SecretFile file(kSecret);
    if (chown(file.path().c_str(), kOther, static_cast<gid_t>(-1)) != 0) return;
    if (geteuid() == kOther) return;
    CHECK_THROWS_WITH(file.found(), ContainsSubstring(" belongs to another user"));
}

TEST_CASE("What is no file, or no secret, is refused") {
    CHECK_THROWS_WITH(secret_in({{"LOCKSTEP_SECRET_FILE", "/nowhere"}}),
                      "LOCKSTEP_SECRET_FILE: /nowhere cannot be read: No such file or "
                      "directory");
    CHECK_THROWS_WITH(secret_in({{"LOCKSTEP_SECRET_FILE", "/"}}),
                      "LOCKSTEP_SECRET_FILE: / is no file");
    CHECK_THROWS_WITH(secret_in({{"LOCKSTEP_SECRET", "password"}}),
                      "LOCKSTEP_SECRET has only 8 characters; a secret has 32 to 4096");
    CHECK_THROWS_WITH(SecretFile(" \n").found(), ContainsSubstring("has only 0"));
    CHECK_THROWS_WITH(SecretFile(std::string(5000, 'x')).found(),
                      ContainsSubstring("has more than 4096"));
}

TEST_CASE("Without a secret, processes meet only at sockets that know their users") {
    const auto placed = [](int size, const std::string& address) {
        Placement placement;
        placement.size = size;
        placement.rendezvous = {address};
        return placement;
    };
    for (const char* address : {"gpu01:29500", "127.0.0.1:29500", "[::1]:29500"}) {
        CHECK_THROWS_WITH(
            require_secret(placed(2, address)),
            StartsWith(fmt::format("processes that meet at {} need a secret", address)) &&
                ContainsSubstring("(umask 077; head -c 32 /dev/urandom | base64 > "
                                  "~/.lockstep-secret)") &&
                ContainsSubstring("LOCKSTEP_SECRET_FILE=$HOME/.lockstep-secret"));
        CHECK_THROWS_AS(Control::join(placed(2, address), {}), UsageError);
        CHECK_NOTHROW(require_secret(placed(1, address)));
    }
    CHECK_NOTHROW(require_secret(placed(2, "unix:somewhere")));
}
