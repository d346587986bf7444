#include "ulysses.hpp"

#include "src/course/not_written.hpp"

using namespace lockstep;

Tensor to_heads(Rank& /*rank*/, const Tensor& /*own_tokens*/, int /*parts*/) {
    throw NotWritten("a13.1: to_heads in ulysses.cpp");
}

Tensor to_tokens(Rank& /*rank*/, const Tensor& /*own_heads*/, int /*parts*/) {
    throw NotWritten("a13.1: to_tokens in ulysses.cpp");
}

Tensor ulysses_forward(Rank& /*rank*/, const Tensor& /*x*/, Module& /*attention*/,
                       Saved& /*saved*/) {
    throw NotWritten("a13.2: ulysses_forward in ulysses.cpp");
}

Tensor ulysses_backward(Rank& /*rank*/, const Tensor& /*dy*/, Module& /*attention*/,
                        Saved& /*saved*/) {
    throw NotWritten("a13.3: ulysses_backward in ulysses.cpp");
}
