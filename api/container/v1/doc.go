// Package containerv1 describes a container's file systems and standard streams independently of any client.
// Engine, shim, sandbox and agent share its three sum types:
//
//   - Root, the container's root file system: Image, Share or Block;
//   - Source, the source of a Mount: Dir, Files, Text, Termination, Image, Share, Block or System;
//   - Stdio, the destination of standard streams: Log, Stream, Discard or Descriptors.
//
// A new kind is one more type here; the compiler and the tests then find all places that must handle it.
//
// The reader of these types defines the meaning of a name (of a file, a share, a device). The engine reads a path of
// the host. A shim reads the name under which the engine has sent the descriptor.
//
// Each sum type has one text form: Mount is a mount of an OCI specification (Mount.Encode, ParseMount), Root is a JSON
// object (RootRecord), Stdio is the three strings of containerd's Task API (EncodeStdio, ParseStdio). Print and parse
// are each other's inverse.
package containerv1
