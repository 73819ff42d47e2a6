package resolver

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A program that is attached here sees the address of a socket call, and may change it.
var (
	toServer   = []uint32{unix.BPF_CGROUP_INET4_CONNECT, unix.BPF_CGROUP_UDP4_SENDMSG}
	fromServer = []uint32{unix.BPF_CGROUP_UDP4_RECVMSG, unix.BPF_CGROUP_INET4_GETPEERNAME}
)

// redirect makes the processes of a cgroup reach the port of the relay at the address of the name server, in the network
// namespace of the calling thread. They find the name server there, and may use its port themselves: for a name server of
// their own, which listens on all addresses.
func redirect(cgroup *os.File, server netip.AddrPort, port uint16, namespace uint64) error {
	for kinds, ports := range map[*[]uint32][2]uint16{&toServer: {server.Port(), port}, &fromServer: {port, server.Port()}} {
		code := program(namespace, server.Addr(), ports[0], ports[1])
		for _, kind := range *kinds {
			if err := attach(cgroup, kind, code); err != nil {
				return fmt.Errorf("redirect %s to port %d: %w", server, port, err)
			}
		}
	}
	return nil
}

// instruction is an instruction of BPF.
type instruction struct {
	code      uint8
	registers uint8 // destination in the low bits, source in the high ones
	offset    int16
	immediate int32
}

// The operations of a program, the places in its context (struct bpf_sock_addr), and the helper that it calls.
const (
	opMove     = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X
	opMoveImm  = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	opLoad     = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	opStore    = unix.BPF_STX | unix.BPF_MEM | unix.BPF_W
	opLoadImm  = unix.BPF_LD | unix.BPF_IMM | unix.BPF_DW
	opUnlike   = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_X
	opUnlikeIm = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	opCall     = unix.BPF_JMP | unix.BPF_CALL
	opExit     = unix.BPF_JMP | unix.BPF_EXIT

	placeAddress = 4
	placePort    = 24

	namespaceCookie = 122
)

// program returns a program that changes one port of an address to another, in one network namespace. It allows every
// call. Register 6 has the context.
func program(namespace uint64, address netip.Addr, from, to uint16) []instruction {
	ip := address.As4()
	return []instruction{
		{code: opMove, registers: 1<<4 | 6},
		{code: opCall, immediate: namespaceCookie},
		{code: opLoadImm, registers: 2, immediate: int32(uint32(namespace))}, {immediate: int32(uint32(namespace >> 32))},
		{code: opUnlike, registers: 2 << 4, offset: 6},
		{code: opLoad, registers: 6<<4 | 2, offset: placeAddress},
		{code: opUnlikeIm, registers: 2, offset: 4, immediate: int32(binary.NativeEndian.Uint32(ip[:]))},
		{code: opLoad, registers: 6<<4 | 2, offset: placePort},
		{code: opUnlikeIm, registers: 2, offset: 2, immediate: int32(inNetwork(from))},
		{code: opMoveImm, registers: 2, immediate: int32(inNetwork(to))},
		{code: opStore, registers: 2<<4 | 6, offset: placePort},
		{code: opMoveImm, registers: 0, immediate: 1},
		{code: opExit},
	}
}

// inNetwork returns a port in the order of the network.
func inNetwork(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// attach loads a program and attaches it to a cgroup, which keeps it.
func attach(cgroup *os.File, kind uint32, code []instruction) error {
	license := []byte("Apache-2.0\x00")
	var pinned runtime.Pinner
	pinned.Pin(&code[0])
	pinned.Pin(&license[0])
	defer pinned.Unpin()
	load := struct {
		kind, count          uint32
		code, license        uint64
		logLevel, logSize    uint32
		log                  uint64
		version, flags       uint32
		name                 [16]byte
		device, expectedKind uint32
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_SOCK_ADDR, count: uint32(len(code)), code: uint64(uintptr(unsafe.Pointer(&code[0]))),
		license: uint64(uintptr(unsafe.Pointer(&license[0]))), expectedKind: kind,
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	if errno != 0 {
		return fmt.Errorf("load a program: %w", errno)
	}
	defer unix.Close(int(fd))
	to := struct{ target, program, kind, flags uint32 }{uint32(cgroup.Fd()), uint32(fd), kind, unix.BPF_F_ALLOW_MULTI}
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_ATTACH, uintptr(unsafe.Pointer(&to)), unsafe.Sizeof(to)); errno != 0 {
		return fmt.Errorf("attach a program: %w", errno)
	}
	return nil
}
