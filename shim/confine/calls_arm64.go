package confine

import "golang.org/x/sys/unix"

var opening = map[uint32]int{unix.SYS_OPENAT: 2}

var deniedLegacy, sealedLegacy []uint32

var vmLegacy = []uint32{unix.SYS_FSTATAT}
