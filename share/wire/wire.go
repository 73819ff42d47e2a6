// Package wire carries FUSE messages between a guest's kernel and the server of its shared
// directories, over a virtio-serial port of their own.
//
// A session begins when a server connects: it says hello with a new epoch, and the guest's
// forwarder answers. Then messages travel both ways, each in one or more frames (package
// channel/frame), the first of which it begins. A server may be killed and another may come:
// the guest's mount stays. What the guest's kernel had asked the former is answered with EIO, or asked again
// (repeat.go), and the next server is told what the kernel said when the mount began (FUSE_INIT).
//
// The forwarder answers some requests itself (local.go), and passes on others for which nobody waits with the number 0:
// these get no reply.
//
// What the guest sends is hostile. A message that is too long, or that is not whole, ends the
// session with an error that matches ErrGuest.
package wire

import (
	"encoding/binary"
	"errors"
)

// MaxData is the most that one FUSE_READ or FUSE_WRITE moves, in bytes.
const MaxData = 1 << 20

// MaxMessage is the longest message: MaxData with FUSE's longest head, and what two file
// names or an extended attribute of 64 KiB may take.
const MaxMessage = MaxData + 4<<10

// version is of the protocol between server and forwarder, in their hello.
const version = 1

// ErrGuest is matched by the errors that the guest has caused.
var ErrGuest = errors.New("the guest broke the protocol of shares")

// The places in the head of a message (the kernel's include/uapi/linux/fuse.h), in the
// machine's own order of bytes: both sides run on one processor.
const (
	minRequest = 40 // bytes of the head of a request
	minReply   = 16 // and of a reply
)

// lengthOf is what a message's first bytes say of its length.
func lengthOf(b []byte) int { return int(binary.NativeEndian.Uint32(b)) }

// codeOf is a request's opcode, or a reply's error.
func codeOf(b []byte) uint32 { return binary.NativeEndian.Uint32(b[4:]) }

// uniqueOf is the number by which a reply is known as its request's.
func uniqueOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b[8:]) }

// nodeOf is the file that a request is about.
func nodeOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b[16:]) }

// The requests that are treated in a way of their own.
const (
	opLookup      = 1
	opForget      = 2
	opGetAttr     = 3
	opReadLink    = 5
	opStatFS      = 17
	opRelease     = 18
	opGetXattr    = 22
	opFlush       = 25
	opInit        = 26
	opReleaseDir  = 29
	opSetLock     = 32
	opSetLockWait = 33
	opInterrupt   = 36
	opBatchForget = 42
)

// Silent tells of a request that gets no reply: by its kind, or because the forwarder has answered it.
func Silent(request []byte) bool { return uniqueOf(request) == 0 || silent(codeOf(request)) }

// silent tells of a request that gets no reply.
func silent(op uint32) bool { return op == opForget || op == opInterrupt || op == opBatchForget }
