/* On every page; those with live figures get their script, from the folder beside this one's. */
if (document.querySelector('.live[data-live]')) {
    const script = document.createElement('script');
    script.src = document.currentScript.src.replace(/theme\/[^/]*$/, 'live/live.js');
    document.head.append(script);
}
