#pragma once

#include <string>

namespace lockstep::gpu {

/// A place to meet, taken apart.
struct Address {
    std::string unix_name;  ///< of "unix:NAME"; empty for a host and port
    std::string host;  ///< a name, an IPv4 address, or an IPv6 address without brackets
    int port = 0;

    /// As it was written: "unix:NAME", "host:port" or "[::1]:port".
    std::string text() const;
};

/// Reads "unix:NAME", "host:port" or "[ipv6]:port". UsageError says what is wrong with
/// the address and begins with `variable`, where it came from.
Address parse_address(const std::string& text, const std::string& variable);

}  // namespace lockstep::gpu
