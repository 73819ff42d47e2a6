package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is a kind of socket.
type Kind byte

// The kinds of sockets. Serve creates them without an address.
const (
	TCP4 Kind = iota + 1
	TCP6
	UDP4
	UDP6
)

// watch is the kind of a request to watch the namespace. Its payload are the arguments of a program.
const watch Kind = 'w'

// maxRequest bounds a request, in bytes. header is the length of its token and kind; a reply has the token and an error
// number.
const (
	maxRequest = 8 << 10
	header     = 5
	replySize  = 8
)

// Pair returns the ends of a new pair: for Serve, and for clients. Neither survives an exec.
func Pair() (serve, clients *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(pair[0]), "namespace"), os.NewFile(uintptr(pair[1]), "namespace"), nil
}

func encode(token uint32, kind Kind, payload string) []byte {
	return append(append(binary.BigEndian.AppendUint32(nil, token), byte(kind)), payload...)
}

// encodeProgram encodes a program. An empty field ends its environment.
func encodeProgram(env, args []string) (string, error) {
	if len(args) == 0 || slices.Contains(env, "") || strings.ContainsRune(strings.Join(slices.Concat(env, args), ""), 0) {
		return "", errors.New("a program must have arguments, and no zero bytes in them or its environment")
	}
	payload := strings.Join(slices.Concat(env, []string{""}, args), "\x00")
	if len(payload) > maxRequest-header {
		return "", fmt.Errorf("a program with its environment has %d bytes: must be at most %d", len(payload), maxRequest-header)
	}
	return payload, nil
}

// decodeProgram undoes encodeProgram.
func decodeProgram(payload string) (p program, err error) {
	fields := strings.Split(payload, "\x00")
	end := slices.Index(fields, "")
	if end < 0 || end == len(fields)-1 {
		return p, unix.EINVAL
	}
	return program{fields[:end], fields[end+1:]}, nil
}

// program is a program to run, with its whole environment.
type program struct{ env, args []string }

// open creates a socket of that kind.
func (k Kind) open() (int, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	switch k {
	case TCP4:
	case TCP6:
		family = unix.AF_INET6
	case UDP4:
		kind = unix.SOCK_DGRAM
	case UDP6:
		family, kind = unix.AF_INET6, unix.SOCK_DGRAM
	default:
		return -1, unix.EINVAL
	}
	return unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}
