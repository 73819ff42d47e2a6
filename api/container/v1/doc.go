// Package containerv1 says what a container is made from and where its standard
// streams lead, in no client's language. Engine, shim, sandbox and agent share its
// three sum types:
//
//   - Root, the container's root file system: Image, Share or Block;
//   - Source, what a Mount mounts: Dir, Files, Text, Termination, Image, Share or Block;
//   - Stdio, where standard streams lead: Log, Stream, Discard or Descriptors.
//
// The next kind of each is one more type here, and the compiler and the tests find
// every place that has to know it.
//
// A name in these types (of a file, a share, a device) belongs to who reads it. The
// engine reads a path of the host; a shim reads the name under which the engine has
// sent the descriptor.
//
// Hooks are beside these: a request to the engine has them, and nothing below it does.
//
// Each sum type has one text form: Mount is a mount of an OCI specification
// (Mount.Encode, ParseMount), Root is a JSON object (RootRecord), Stdio is the three
// strings of containerd's Task API (EncodeStdio, ParseStdio). Print and parse are each
// other's inverse.
package containerv1
