# Sourced by the checks for other targets. Sets `src` to the standard library's source for the
# installed rustc: from rustc's own folder, or from Debian's package rust-src, which it unpacks into
# a cache. If neither is available, prints "SKIPPED $1" and exits successfully.
rustc_version=$(rustc -vV | sed -n 's/^release: //p')
src=$(rustc --print sysroot)/lib/rustlib/src/rust/library
if [ ! -f "$src/Cargo.lock" ]; then
  cache=${RUST_SRC_CACHE:-$HOME/.cache/rust-src}/$rustc_version
  src=$cache/library
fi
if [ ! -f "$src/Cargo.lock" ]; then
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/cache/archives/partial"
  cd "$cache/apt"
  uri=$({ grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true; } | head -1 | tr -d ' ')
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri trixie-backports main" >s.list
  printf 'Dir::Etc::sourcelist "%s";\nDir::Etc::sourceparts "-";\nDir::State::lists "%s";\nDir::Cache "%s";\n' \
    "$PWD/s.list" "$PWD/lists" "$PWD/cache" >o.conf
  export APT_CONFIG=$PWD/o.conf
  if apt-get update -qq &&
    package=$(apt-cache madison rust-src | awk '{print $3}' | grep "^${rustc_version}[+]" | sort -V | tail -1) &&
    apt-get download -qq "rust-src=$package"; then
    dpkg-deb --fsys-tarfile rust-src_*.deb | tar x -C "$cache" --strip-components=4 "./usr/src/rustc-$rustc_version/library"
  else
    echo "SKIPPED $1: no rust-src $rustc_version (rustup component add rust-src)"
    exit 0
  fi
  unset APT_CONFIG
  cd - >/dev/null
fi
