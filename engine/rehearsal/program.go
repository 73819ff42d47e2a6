package rehearsal

import (
	"bytes"
	"encoding/binary"
)

// code is the whole program. Like other programs it touches the pages of its file, and
// allocates one. With an argument it then waits for a signal; otherwise it writes a line and exits.
//
//	  lea  rsi, start[rip]
//	  mov  ecx, 15
//	touch:
//	  mov  al, [rsi]
//	  add  rsi, 4096
//	  dec  ecx
//	  jnz  touch
//	  mov  eax, 12                 brk(0)
//	  xor  edi, edi
//	  syscall
//	  lea  rdi, [rax+8192]         brk(that + 8192)
//	  mov  eax, 12
//	  syscall
//	  mov  byte ptr [rax-4096], 1
//	  cmp  qword ptr [rsp], 1      argc
//	  jg   wait
//	  mov  eax, 1                  write(1, line, 6)
//	  mov  edi, 1
//	  lea  rsi, line[rip]
//	  mov  edx, 6
//	  syscall
//	  mov  eax, 231                exit_group(0)
//	  xor  edi, edi
//	  syscall
//	wait:
//	  mov  eax, 34                 pause()
//	  syscall
//	  jmp  wait
//	line:
//	  "ready\n"
var code = []byte{
	0x48, 0x8d, 0x35, 0x00, 0x00, 0x00, 0x00, 0xb9, 0x0f, 0x00, 0x00, 0x00,
	0x8a, 0x06, 0x48, 0x81, 0xc6, 0x00, 0x10, 0x00, 0x00, 0xff, 0xc9, 0x75,
	0xf3, 0xb8, 0x0c, 0x00, 0x00, 0x00, 0x31, 0xff, 0x0f, 0x05, 0x48, 0x8d,
	0xb8, 0x00, 0x20, 0x00, 0x00, 0xb8, 0x0c, 0x00, 0x00, 0x00, 0x0f, 0x05,
	0xc6, 0x80, 0x00, 0xf0, 0xff, 0xff, 0x01, 0x48, 0x83, 0x3c, 0x24, 0x01,
	0x7f, 0x21, 0xb8, 0x01, 0x00, 0x00, 0x00, 0xbf, 0x01, 0x00, 0x00, 0x00,
	0x48, 0x8d, 0x35, 0x19, 0x00, 0x00, 0x00, 0xba, 0x06, 0x00, 0x00, 0x00,
	0x0f, 0x05, 0xb8, 0xe7, 0x00, 0x00, 0x00, 0x31, 0xff, 0x0f, 0x05, 0xb8,
	0x22, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xeb, 0xf7, 0x72, 0x65, 0x61, 0x64,
	0x79, 0x0a,
}

// The load address, the size of the file (so that it is read from disk like others), and the sizes of the headers
// of an ELF file.
const (
	base       = 0x400000
	fileSize   = 64 << 10
	headerSize = 64
	programs   = 56
)

// program returns the code as a static executable of one segment.
func program() []byte {
	le := binary.LittleEndian
	h := make([]byte, headerSize+programs)
	copy(h, "\x7fELF\x02\x01\x01") // 64 bits, little-endian, version 1
	le.PutUint16(h[16:], 2)        // ET_EXEC
	le.PutUint16(h[18:], 62)       // EM_X86_64
	le.PutUint32(h[20:], 1)
	le.PutUint64(h[24:], base+headerSize+programs) // the entry point
	le.PutUint64(h[32:], headerSize)               // of the program header
	le.PutUint16(h[52:], headerSize)
	le.PutUint16(h[54:], programs)
	le.PutUint16(h[56:], 1) // of them
	p := h[headerSize:]
	le.PutUint32(p[0:], 1) // PT_LOAD
	le.PutUint32(p[4:], 5) // PF_R | PF_X
	le.PutUint64(p[16:], base)
	le.PutUint64(p[24:], base)
	le.PutUint64(p[32:], fileSize)
	le.PutUint64(p[40:], fileSize)
	le.PutUint64(p[48:], 4096)
	file := bytes.Repeat([]byte{0xcc}, fileSize) // no holes
	copy(file, h)
	copy(file[len(h):], code)
	return file
}
