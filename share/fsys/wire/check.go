package wire

import (
	"encoding/binary"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// header is the part of a request's header that is checked.
type header struct {
	length, opcode uint32
	unique, node   uint64
	extra          uint16
}

// operation describes a request, for the checks before it is answered.
type operation struct {
	// least is the length of the request without its names and data.
	least int
	// answer is the length of the answer without its data.
	answer int
	// size is the offset of the size of the requested data, 0 if the request has none.
	size int
	// silent means that the request has no answer.
	silent bool
}

const opInit = 26

// name is the shortest name.
const name = 2

// operations are the supported requests, by opcode.
var operations = map[uint32]operation{
	1:  {least: inHeader + name, answer: sizeof(fuse.EntryOut{})},
	2:  {least: sizeof(fuse.ForgetIn{}), silent: true},
	3:  {least: sizeof(fuse.GetAttrIn{}), answer: sizeof(fuse.AttrOut{})},
	4:  {least: sizeof(fuse.SetAttrIn{}), answer: sizeof(fuse.AttrOut{})},
	5:  {least: inHeader, answer: unix.PathMax},
	6:  {least: inHeader + 2*name, answer: sizeof(fuse.EntryOut{})},
	8:  {least: sizeof(fuse.MknodIn{}) + name, answer: sizeof(fuse.EntryOut{})},
	9:  {least: sizeof(fuse.MkdirIn{}) + name, answer: sizeof(fuse.EntryOut{})},
	10: {least: inHeader + name},
	11: {least: inHeader + name},
	12: {least: inHeader + 8 + 2*name},
	13: {least: sizeof(fuse.LinkIn{}) + name, answer: sizeof(fuse.EntryOut{})},
	14: {least: sizeof(fuse.OpenIn{}), answer: sizeof(fuse.OpenOut{})},
	15: {least: sizeof(fuse.ReadIn{}), size: int(unsafe.Offsetof(fuse.ReadIn{}.Size))},
	16: {least: sizeof(fuse.WriteIn{}), answer: sizeof(fuse.WriteOut{})},
	17: {least: inHeader, answer: sizeof(fuse.StatfsOut{})},
	18: {least: sizeof(fuse.ReleaseIn{})},
	20: {least: sizeof(fuse.FsyncIn{})},
	21: {least: inHeader + 8 + name},
	22: {least: sizeof(fuse.GetXAttrIn{}) + name, answer: sizeof(fuse.GetXAttrOut{}), size: int(unsafe.Offsetof(fuse.GetXAttrIn{}.Size))},
	23: {least: sizeof(fuse.GetXAttrIn{}), answer: sizeof(fuse.GetXAttrOut{}), size: int(unsafe.Offsetof(fuse.GetXAttrIn{}.Size))},
	24: {least: inHeader + name},
	25: {least: sizeof(fuse.FlushIn{})},
	// Before version 36 the greeting is shorter.
	opInit: {least: inHeader + 16, answer: sizeof(fuse.InitOut{})},
	27:     {least: sizeof(fuse.OpenIn{}), answer: sizeof(fuse.OpenOut{})},
	28:     {least: sizeof(fuse.ReadIn{}), size: int(unsafe.Offsetof(fuse.ReadIn{}.Size))},
	29:     {least: sizeof(fuse.ReleaseIn{})},
	30:     {least: sizeof(fuse.FsyncIn{})},
	31:     {least: sizeof(fuse.LkIn{}), answer: sizeof(fuse.LkOut{})},
	32:     {least: sizeof(fuse.LkIn{})},
	33:     {least: sizeof(fuse.LkIn{})},
	35:     {least: sizeof(fuse.CreateIn{}) + name, answer: sizeof(fuse.CreateOut{})},
	36:     {least: sizeof(fuse.InterruptIn{})},
	38:     {least: inHeader},
	42:     {least: inHeader + 8, silent: true},
	43:     {least: sizeof(fuse.FallocateIn{})},
	44:     {least: sizeof(fuse.ReadIn{}), size: int(unsafe.Offsetof(fuse.ReadIn{}.Size))},
	45:     {least: sizeof(fuse.RenameIn{}) + 2*name},
	46:     {least: sizeof(fuse.LseekIn{}), answer: sizeof(fuse.LseekOut{})},
	47:     {least: sizeof(fuse.CopyFileRangeIn{}), answer: sizeof(fuse.WriteOut{})},
	51:     {least: sizeof(fuse.CreateIn{}), answer: sizeof(fuse.CreateOut{})},
}

func sizeof[T any](T) int {
	var t T
	return int(unsafe.Sizeof(t))
}

// check returns the error for a request that is refused. Unknown requests get ENOSYS; the guest's kernel does not send
// them again.
func (h header) check(op operation, known bool, request []byte, room int) unix.Errno {
	switch {
	case !known:
		return unix.ENOSYS
	case h.length != uint32(len(request)), len(request) < op.least, h.extra != 0:
		return unix.EINVAL
	case h.node == ^uint64(0): // go-fuse's own, for its tests
		return unix.ESTALE
	}
	size := uint32(0)
	if op.size > 0 {
		size = binary.NativeEndian.Uint32(request[op.size:])
	}
	if uint64(OutHeader+op.answer)+uint64(size) > uint64(room) {
		return unix.EINVAL
	}
	return 0
}
