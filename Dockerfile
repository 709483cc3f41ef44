FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3-venv
WORKDIR /tch-parallel
COPY . .
RUN cargo xtask build --package ddp-mnist --package tch-parallel-launch

FROM debian:bookworm-slim
WORKDIR /job
COPY --from=build /tch-parallel/.libtorch /tch-parallel/.libtorch
COPY --from=build /tch-parallel/target/release/launch \
    /tch-parallel/target/release/ddp-mnist /usr/local/bin/
CMD ["launch", "-n", "2", "ddp-mnist", "--lr", "0.05", "--momentum", "0.9"]
