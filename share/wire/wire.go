// Package wire carries FUSE messages between a guest's kernel and its share server, over a virtio-serial port of their
// own.
//
// A session starts when a server connects: it sends hello with a new epoch, and the guest's forwarder answers. Then
// messages travel both ways, in one or more frames each (package channel/frame). A message starts at the start of a
// frame. A server may be killed and replaced; the guest's mount stays. Requests to the former server are answered with
// EIO, or repeated (repeat.go). The next server gets the kernel's FUSE_INIT from the start of the mount.
//
// The forwarder answers some requests itself (local.go). It passes on others with the number 0, because the kernel does
// not wait for them: these get no reply.
//
// The guest is treated as hostile. A message that is too long or incomplete ends the session with an error that matches
// errGuest.
package wire

import (
	"encoding/binary"
	"errors"
)

// MaxData is the most bytes that one FUSE_READ or FUSE_WRITE moves.
const MaxData = 1 << 20

// MaxMessage is the longest message: MaxData with FUSE's longest head, and space for two file names or an extended
// attribute of 64 KiB.
const MaxMessage = MaxData + 4<<10

// version is the version of the protocol between server and forwarder, in their hello.
const version = 1

// errGuest is matched by errors that the guest has caused.
var errGuest = errors.New("the guest broke the protocol of shares")

// The offsets in the head of a message (the kernel's include/uapi/linux/fuse.h). The byte order is the host's: both
// sides run on one processor.
const (
	minRequest = 40 // bytes of the head of a request
	minReply   = 16 // and of a reply
)

// lengthOf returns a message's length, as its first bytes claim.
func lengthOf(b []byte) int { return int(binary.NativeEndian.Uint32(b)) }

// codeOf returns a request's opcode, or a reply's error.
func codeOf(b []byte) uint32 { return binary.NativeEndian.Uint32(b[4:]) }

// uniqueOf returns the number that a request and its reply share.
func uniqueOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b[8:]) }

// nodeOf returns the file of a request.
func nodeOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b[16:]) }

// The requests with special treatment.
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

// Silent reports whether a request gets no reply, because of its kind or because the forwarder has answered it.
func Silent(request []byte) bool { return uniqueOf(request) == 0 || silent(codeOf(request)) }

// silent reports whether a kind of request gets no reply.
func silent(op uint32) bool { return op == opForget || op == opInterrupt || op == opBatchForget }
