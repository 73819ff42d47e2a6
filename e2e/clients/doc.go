// Package clients tests the OCI runtime as podman, docker and containerd use it. The same tests run with runc, so that
// each expectation holds for the runtime that these clients were written for. The tests run on a host of their own
// (package testhost).
package clients
