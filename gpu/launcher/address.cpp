#include "gpu/launcher/address.hpp"

#include <charconv>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

constexpr size_t kLongestUnixName = 100;  // sockaddr_un has 108 bytes

int parse_port(const std::string& text) {
    int port = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), port);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && port <= 65535 ? port : 0;
}

}  // namespace

std::string Address::text() const {
    if (!unix_name.empty()) return "unix:" + unix_name;
    const bool ipv6 = host.find(':') != std::string::npos;
    return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Address parse_address(const std::string& text, const std::string& variable) {
    const auto wrong = [&](const char* expected) {
        return fmt::format("{}: \"{}\" is no address to meet at; expected {}", variable,
                           text, expected);
    };
    Address address;
    if (text.starts_with("unix:")) {
        address.unix_name = text.substr(5);
        require(
            !address.unix_name.empty() && address.unix_name.size() <= kLongestUnixName,
            [&] { return wrong("unix:NAME with a name of 1 to 100 characters"); });
        return address;
    }
    const size_t colon = text.rfind(':');
    require(colon != std::string::npos && colon > 0,
            [&] { return wrong("host:port, as in node01:29500"); });
    address.host = text.substr(0, colon);
    if (address.host.front() == '[' && address.host.back() == ']') {
        address.host = address.host.substr(1, address.host.size() - 2);
        require(!address.host.empty(), [&] { return wrong("[::1]:29500"); });
    } else {
        require(address.host.find(':') == std::string::npos,
                [&] { return wrong("an IPv6 address in brackets, as in [::1]:29500"); });
    }
    address.port = parse_port(text.substr(colon + 1));
    require(address.port > 0, [&] { return wrong("a port from 1 to 65535"); });
    return address;
}

}  // namespace lockstep::gpu
